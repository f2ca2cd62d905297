"""The leaves of modules, and copies of modules.

Requirements this module answers:

* Every object stays the same: parameters, gradients and also buffers. PyTorch's own ``Module.to`` replaces buffers by
  new tensors, so that two names for one buffer come apart.
* A leaf's name is its name in ``state_dict``; buffers that are not saved have a name as well.
* A tensor whose data cannot be replaced is refused while leaves are listed, before anything is copied.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parameter import is_lazy

from devshim.contract.backend import Backend
from devshim.contract.models import Leaf
from devshim.errors import ArgumentError, UnsupportedError, messages
from devshim_backends._keras.cloning import clone_objects, rebuild_layer
from devshim_backends._keras.models import leaves_of
from devshim_backends._keras.traversal import is_model_or_optimizer
from devshim_backends._torch.models import dispatch, keras_dispatch, optimizers
from devshim_backends._torch.models.keras_traversal import CONTENTS, leaves_of_variable
from devshim_backends._torch.models.storage_swap import WithGradient, exchange, refuse, refuse_frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from devshim.devices.device import Device


class TorchModels(Backend):
    """Mixin for models."""

    def leaves(self, obj: Any) -> list[Leaf]:
        if is_model_or_optimizer(type(obj)):
            return leaves_of(CONTENTS, leaves_of_variable, obj)
        if isinstance(obj, torch.nn.Module):
            return list(_of_model(obj))
        if isinstance(obj, torch.optim.Optimizer):
            return list(optimizers.of_optimizer(obj))
        return list(optimizers.of_others(obj))

    def install_hooks(self, obj: Any, where: Callable[[str], Device]) -> Callable[[], None]:
        if is_model_or_optimizer(type(obj)):
            return keras_dispatch.install_hooks(self, obj, where)
        if isinstance(obj, torch.nn.Module):
            return dispatch.install_hooks(self, obj, where)
        if isinstance(obj, torch.Generator):
            _require_there(self, obj, where(""))
        return _nothing

    def clone(self, obj: Any) -> Any:
        return self.clones([obj])[0]

    def clones(self, objects: Sequence[Any]) -> list[Any]:
        of_keras = [each for each in objects if is_model_or_optimizer(type(each))]
        if of_keras:
            made_there = dict(zip(map(id, of_keras), self._clones_of_keras(of_keras), strict=True))
            others = [each for each in objects if id(each) not in made_there]
            made_there.update(zip(map(id, others), self.clones(others) if others else (), strict=True))
            return [made_there[id(each)] for each in objects]
        optimizers.require_together(objects)
        try:
            made: list[Any] = copy.deepcopy(list(objects))  # all at once: an optimizer's parameters are its model's
            for old, new in zip(objects, made, strict=True):
                if isinstance(old, torch.nn.Module):
                    _copy_gradients(old, new)
        except (RuntimeError, TypeError) as error:
            if self.is_out_of_memory(error):
                raise messages.out_of_memory_for_clones(self, objects) from error
            raise UnsupportedError(
                f"PyTorch cannot copy this: {error}", "create another one, and load the state_dict of the first into it"
            ) from error
        return made

    def _clones_of_keras(self, objects: Sequence[Any]) -> list[Any]:
        made = clone_objects(self, CONTENTS, objects, lambda layer: rebuild_layer(CONTENTS, layer))
        for new in made:
            keras_dispatch.install_hooks(self, new, _nowhere)
        return made


def _nowhere(path: str) -> Device:
    """Refuse to place a part: this is for a copy whose unbuilt parts were never placed."""
    raise ArgumentError(f"{path!r} of the copy is unbuilt, and has not been placed", "place the copy on a device")


def _of_model(model: Any) -> Iterator[Leaf]:
    """Yield the parameters and buffers of every module, each followed by its gradient."""
    for prefix, module in model.named_modules(remove_duplicate=False):
        refuse_frozen(module)
        for name, tensor in module._parameters.items():
            yield from _of_tensor(module, prefix, name, tensor, "parameter")
        for name, tensor in module._buffers.items():
            yield from _of_tensor(module, prefix, name, tensor, "buffer")


def _of_tensor(module: Any, prefix: str, name: str, tensor: Any, kind: Any) -> Iterator[Leaf]:
    if tensor is None or is_lazy(tensor):
        return
    path = f"{prefix}.{name}" if prefix else name
    refuse(path, tensor)
    # TorchScript holds its tensors in C++, and must be notified where `data =` replaces one (on simulated GPUs).
    after = (lambda: module._c.setattr(name, tensor)) if isinstance(module, torch.jit.ScriptModule) else None
    if tensor.grad is None:
        yield Leaf(path, kind, tensor.detach, exchange(tensor, after), tensor)
        return
    both = WithGradient(tensor, after)
    yield Leaf(path, kind, tensor.detach, both.write_tensor, tensor)
    yield Leaf(f"{path}.grad", "gradient", tensor.grad.detach, both.write_gradient, tensor.grad, tensor)


def _require_there(backend: Backend, generator: Any, device: Device) -> None:
    found = backend.from_native(generator.device)
    if found is not device:
        raise UnsupportedError(
            f"a torch.Generator is bound to its device: this one draws on {found}, and cannot draw on {device}",
            f"create another one: torch.Generator({backend.native_text(device)})",
        )


def _copy_gradients(old: Any, new: Any) -> None:
    """Give a copy's parameters copies of the gradients, which PyTorch's ``deepcopy`` omits."""
    for source, target in zip(old.parameters(), new.parameters(), strict=True):
        if not is_lazy(source) and source.grad is not None:
            target.grad = source.grad.detach().clone()


def _nothing() -> None:
    """Undo nothing."""
