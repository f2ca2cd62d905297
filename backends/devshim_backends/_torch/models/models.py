"""The leaves of modules, and copies of modules.

Requirements of this module:

* Every object stays the same: parameters, gradients and also buffers. PyTorch's own ``Module.to`` replaces buffers by
  new tensors, so that two names for one buffer come apart.
* A leaf's name is its name in ``state_dict``; buffers that are not saved have a name as well.
* A tensor whose data cannot be replaced is refused while leaves are listed, before anything is copied.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parameter import is_lazy

from devshim.contract.backend import Backend
from devshim.contract.blocks import join_path
from devshim.errors import ArgumentError, UnsupportedError, messages
from devshim_backends._keras.cloning import clone_objects, rebuild_layer
from devshim_backends._keras.models import leaves_of
from devshim_backends._keras.traversal import is_model_or_optimizer
from devshim_backends._torch.models import dispatch, optimizers
from devshim_backends._torch.models.internals.own_apply import moves_more, plain_leaves
from devshim_backends._torch.models.keras import dispatch as keras_dispatch
from devshim_backends._torch.models.keras.traversal import CONTENTS, leaves_of_variable
from devshim_backends._torch.models.storage_swap import leaves_of_tensor, require_not_frozen
from devshim_backends._torch.models.traversal import all_tensors, own_tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from devshim.contract.models import Leaf
    from devshim.devices.device import Device


class TorchModels(Backend):
    """Mixin for models."""

    def leaves(self, obj: Any) -> list[Leaf]:
        if is_model_or_optimizer(type(obj)):
            return leaves_of(CONTENTS, leaves_of_variable, obj)
        if isinstance(obj, torch.nn.Module):
            return list(_leaves_of_module(obj))
        if isinstance(obj, torch.optim.Optimizer):
            return list(optimizers.leaves_of_optimizer(obj))
        return list(optimizers.leaves_of_other(obj))

    def install_hooks(self, obj: Any, where: Callable[[str], Device]) -> Callable[[], None]:
        if is_model_or_optimizer(type(obj)):
            return keras_dispatch.install_hooks(self, obj, where)
        if isinstance(obj, torch.nn.Module):
            return dispatch.install_hooks(self, obj, where)
        if isinstance(obj, torch.Generator):
            _refuse_generator(self, obj, where(""))
        return lambda: None

    def clone(self, obj: Any) -> Any:
        return self.clones([obj])[0]

    def clones(self, objects: Sequence[Any]) -> list[Any]:
        keras_objects = [each for each in objects if is_model_or_optimizer(type(each))]
        if keras_objects:
            copies = dict(zip(map(id, keras_objects), self._clone_keras(keras_objects), strict=True))
            others = [each for each in objects if id(each) not in copies]
            copies.update(zip(map(id, others), self.clones(others) if others else (), strict=True))
            return [copies[id(each)] for each in objects]
        optimizers.require_complete(objects)
        memo: dict[int, Any] = {}
        try:
            _copy_scripted(objects, memo)
            # All together: an optimizer's parameters are its model's.
            made: list[Any] = copy.deepcopy(list(objects), memo)
            for old, new in zip(objects, made, strict=True):
                if isinstance(old, torch.nn.Module):
                    _copy_gradients(old, new)
                elif isinstance(old, torch.optim.Optimizer):
                    optimizers.complete_copy(old, memo)
        except (RuntimeError, TypeError) as error:
            if self.is_out_of_memory(error):
                raise messages.out_of_memory_for_clones(self, objects) from error
            msg = f"PyTorch cannot copy this: {error}"
            raise UnsupportedError(msg, "create another one, and load the state_dict of the first into it") from error
        return made

    def _clone_keras(self, objects: Sequence[Any]) -> list[Any]:
        made = clone_objects(self, CONTENTS, objects, lambda layer: rebuild_layer(CONTENTS, layer))
        for new in made:
            keras_dispatch.install_hooks(self, new, _refuse_unplaced)
        return made


def _refuse_unplaced(path: str) -> Device:
    """Refuse to place a part: this is for a copy whose unbuilt parts were never placed."""
    msg = f"{path!r} of the copy is unbuilt, and has not been placed"
    raise ArgumentError(msg, "place the copy on a device")


def _leaves_of_module(model: Any) -> Iterator[Leaf]:
    """Yield the parameters and buffers of every module, each followed by its gradient, then tensors in attributes."""
    known: set[int] = set()
    moving_more = []
    for prefix, module in model.named_modules(remove_duplicate=False):
        if moves_more(module):
            moving_more.append((prefix, module))
        require_not_frozen(module)
        # TorchScript stores its tensors in C++, and must be notified where `data =` replaces one (on simulated GPUs).
        notify = module._c.setattr if isinstance(module, torch.jit.ScriptModule) else None
        for name, tensor in own_tensors(module):
            known |= {id(tensor), id(tensor.grad) if tensor.is_leaf else 0}
            if not is_lazy(tensor):
                kind = "parameter" if name in module._parameters else "buffer"
                after = None if notify is None else partial(notify, name, tensor)
                yield from leaves_of_tensor(join_path(prefix, name), kind, tensor, after=after)
    for prefix, module in moving_more:  # when all parameters and buffers are known
        yield from plain_leaves(prefix, module, known)


def _refuse_generator(backend: Backend, generator: Any, device: Device) -> None:
    found = backend.from_native(generator.device)
    if found is not device:
        msg = f"a torch.Generator is bound to its device: this one draws on {found}, and cannot draw on {device}"
        raise UnsupportedError(msg, f"create another one: torch.Generator({backend.native_text(device)})")


def _copy_scripted(objects: Sequence[Any], memo: dict[int, Any]) -> None:
    """Copy the TorchScript modules in models into the memo of a ``deepcopy``, with their parts and tensors.

    PyTorch (2.13) copies their tensors in C++: copies of parameters are results of ``clone``, which have a graph, and
    its memo does not have them, so that an optimizer would train other copies.
    """
    found = (each for obj in objects if isinstance(obj, torch.nn.Module) for each in obj.modules())
    for module in found:
        if not isinstance(module, torch.jit.ScriptModule) or id(module) in memo:
            continue
        twin = copy.deepcopy(module, memo)
        memo.update((id(old), new) for old, new in zip(module.modules(), twin.modules(), strict=True))
        for old, new in zip(all_tensors(module), all_tensors(twin), strict=True):
            if not new.is_leaf:
                new.detach_().requires_grad_(old.requires_grad)
            memo[id(old)] = new


def _copy_gradients(old: Any, new: Any) -> None:
    """Give a copy's parameters copies of the gradients, which PyTorch's ``deepcopy`` omits."""
    for source, target in zip(old.parameters(), new.parameters(), strict=True):
        if not is_lazy(source) and source.grad is not None:
            target.grad = source.grad.detach().clone()
