"""Copies of layers and optimizers that can be trained independently.

Requirements that this module meets:

* Each tensor is copied on its device. PaddlePaddle's own ``deepcopy`` puts a copied parameter on the default device,
  makes a frozen one trainable, and loses the gradient (3.0 to 3.3).
* The parameters of a copy have new names: Paddle's optimizers identify a parameter by its name, and one optimizer may
  train a model and its copy. The copy of an optimizer stores its state under the new names. Paddle's own
  ``deepcopy`` does not do that, so that optimizer would start from zero.
* The new name ends like the old one, for functions that decide by a parameter's name, for example whether it is a bias.
* An optimizer must be copied together with the model whose parameters it trains; otherwise it is refused.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import paddle
from paddle.base import unique_name

from devshim.errors import UnsupportedError, messages
from devshim_backends._paddle.models.optimizers import MASTER, accumulators_of, inner_optimizers, parameters_of
from devshim_backends._paddle.models.storage_swap import accessors, release_flat_weight
from devshim_backends._paddle.scopes import open_scope

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from devshim.contract.backend import Backend, Tensor

    Memo = dict[int, Any]

__all__ = ["clones"]


def clones(backend: Backend, objects: Sequence[Any]) -> list[Any]:
    """Return copies of models, optimizers, schedulers and scalers; see `ModelBackend.clones`."""
    _require_together(objects)
    try:
        return _copy_all(backend, objects)
    except (RuntimeError, TypeError, ValueError) as error:
        if backend.is_out_of_memory(error):
            raise messages.out_of_memory_for_clones(backend, objects) from error
        msg = f"PaddlePaddle cannot make a copy of this: {error}"
        raise UnsupportedError(msg, "make another one and load the state of the first") from error


def _copy_all(backend: Backend, objects: Sequence[Any]) -> list[Any]:
    memo: Memo = {}
    trained = []
    for obj in objects:
        for leaf in backend.leaves(obj):
            if leaf.kind == "gradient":
                trained.append(leaf)
            elif id(leaf.owner) not in memo:
                memo[id(leaf.owner)] = _copy_tensor(backend, leaf.owner)
        for each in _list_optimizers(obj):
            memo[id(each._learning_rate_map)] = {}  # its keys are Paddle's programs
            memo[id(each.helper)] = each.helper  # it generates names, and has no state
    for leaf in {id(leaf.owner): leaf for leaf in trained}.values():
        _copy_gradient(backend, leaf.owner, memo[id(leaf.owner)])
    made = copy.deepcopy(list(objects), memo)
    for old, new in zip(objects, made, strict=True):
        for one, other in zip(_list_optimizers(old), _list_optimizers(new), strict=True):
            _rename_state(one, other)
        if isinstance(old, paddle.amp.AmpScaler) and hasattr(old, "_optimizer_states"):
            states = {id(memo.get(key, key)): state for key, state in new._optimizer_states.items()}
            new._optimizer_states.clear()
            new._optimizer_states.update({key: state for key, state in states.items() if key in map(id, made)})
        for layer in new.sublayers(include_self=True) if isinstance(new, paddle.nn.Layer) else ():
            release_flat_weight(layer)
    return made


def _copy_tensor(backend: Backend, tensor: Tensor) -> Tensor:
    """Return a copy of a tensor on the same device; the copy of a parameter is another parameter."""
    device = backend.device_of(tensor)
    made = backend.detached_copy(tensor)
    if isinstance(tensor, paddle.base.framework.EagerParamBase):
        with open_scope(device):
            parameter = copy.deepcopy(tensor)
        _, write = accessors(parameter)
        write(made)
        made, parameter.stop_gradient = parameter, tensor.stop_gradient
    else:
        made.stop_gradient = tensor.stop_gradient or not tensor.is_leaf
    made.persistable = tensor.persistable
    made.name = _make_name(tensor.name)
    return made


def _copy_gradient(backend: Backend, source: Tensor, target: Tensor) -> None:
    gradient = source.grad
    if gradient.is_selected_rows():
        msg = "the gradient of a sparse embedding cannot be copied"
        raise UnsupportedError(msg, "copy the model before backward(), or after the step")
    made = backend.detached_copy(gradient)
    with open_scope(backend.device_of(target)):
        target.grad = made
    _, write = accessors(target.grad)
    write(made)


def _make_name(name: str) -> str:
    """Return a new name that ends in the same way, even for copies of copies."""
    return f"{unique_name.generate('copy')}.{name.partition('.')[2] if name.startswith('copy_') else name}"


# ---------------------------------------------------------------------- optimizers
def _list_optimizers(obj: Any) -> list[Any]:
    """Return an optimizer and those that it wraps; an empty list for other objects."""
    if not isinstance(obj, paddle.optimizer.Optimizer):
        return []
    return [obj, *inner_optimizers(obj).values()]


def _require_together(objects: Sequence[Any]) -> None:
    """Refuse to copy an optimizer without its model.

    Raises:
        UnsupportedError: The copy would train parameters that no model has.
    """
    layers = [obj for obj in objects if isinstance(obj, paddle.nn.Layer)]
    copied = {id(p) for layer in layers for p in layer.parameters()}
    for obj in objects:
        if any(id(p) not in copied for each in _list_optimizers(obj) for p in parameters_of(each)):
            msg = f"a copy of this {type(obj).__name__} alone would train copies of parameters that no model has"
            raise UnsupportedError(msg, "copy it together with its model: ds.copy([model, optimizer], device)")


def _rename_state(old: Any, new: Any) -> None:
    """Rename the keys of a copied optimizer's state from the names of the old parameters to those of the new ones."""
    names = {a.name: b.name for a, b in zip(parameters_of(old), parameters_of(new), strict=True)}
    masters = new._master_weights or {}
    for name, master in list(masters.items()):
        named = old._master_weights[name].name
        names[named] = master.name
        del masters[name]
        masters[names.get(name, name)] = master
    for tensors in new._accumulators.values():
        renamed = {names.get(name, name): tensor for name, tensor in tensors.items()}
        tensors.clear()
        tensors.update(renamed)
    new._opti_name_list = [tensor.name for _, name, tensor in accumulators_of(new) if name != MASTER]
    if hasattr(new, "_already_create_accumulator"):  # from 3.0 on
        new._already_create_accumulator = {names.get(name, name) for name in new._already_create_accumulator}
    decays = getattr(new, "_apply_decay_param_fun", None)
    if decays is not None:
        new._apply_decay_param_fun = _CallWithOldName(decays, names)


class _CallWithOldName:
    """A function of a parameter's name that is called with the name of the parameter that was copied."""

    def __init__(self, function: Callable[[str], Any], names: dict[str, str]) -> None:
        self._function = function
        self._names = {new: old for old, new in names.items()}

    def __call__(self, name: str) -> Any:
        return self._function(self._names.get(name, name))
