"""Copies of layers and optimizers that train on by themselves.

Requirements this module answers:

* Each tensor is copied on its device.  PaddlePaddle's own ``deepcopy`` of a parameter lands on the default device,
  lets a frozen one be trained, and forgets the gradient (2.6 to 3.3).
* A copy's parameters have names of their own: by its name Paddle's optimizers know a parameter, and one optimizer may
  train a model and its copy.  What an optimizer keeps by name is kept by the new name in its copy, which Paddle's own
  ``deepcopy`` does not: it would begin anew.
* The new name ends as the old one did, for functions that ask a name whether it is a bias's, say.
* An optimizer's parameters are those of the model that is copied with it, or it is refused.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import paddle
from paddle.base import unique_name

from devshim.errors import UnsupportedError, messages
from devshim_backends._paddle.models.optimizers import MASTER, accumulators_of, inner_of, parameters_of
from devshim_backends._paddle.models.storage_swap import exchange, let_go
from devshim_backends._paddle.scopes import open_scope

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from devshim.contract.backend import Backend, Tensor

    Memo = dict[int, Any]

__all__ = ["clones"]


def clones(backend: Backend, wholes: Sequence[Any]) -> list[Any]:
    """Copies of models, optimizers, schedulers and scalers; see `devshim.contract.models.Wholes.clones`."""
    _require_together(wholes)
    try:
        return _copied(backend, wholes)
    except (RuntimeError, TypeError, ValueError) as error:
        if backend.is_out_of_memory(error):
            raise messages.no_room_for_clones(backend, wholes) from error
        raise UnsupportedError(
            f"PaddlePaddle cannot make a copy of this: {error}", "make another one and load the state of the first"
        ) from error


def _copied(backend: Backend, wholes: Sequence[Any]) -> list[Any]:
    memo: Memo = {}
    trained = []
    for whole in wholes:
        for leaf in backend.leaves(whole):
            if leaf.kind == "gradient":
                trained.append(leaf)
            elif id(leaf.owner) not in memo:
                memo[id(leaf.owner)] = _copy_of(backend, leaf.owner)
        for each in _optimizers_in(whole):
            memo[id(each._learning_rate_map)] = {}  # its keys are Paddle's programs
            memo[id(each.helper)] = each.helper  # it makes names, and holds nothing
    for leaf in {id(leaf.owner): leaf for leaf in trained}.values():
        _give_gradient(backend, leaf.owner, memo[id(leaf.owner)])
    made = copy.deepcopy(list(wholes), memo)
    for old, new in zip(wholes, made, strict=True):
        for one, other in zip(_optimizers_in(old), _optimizers_in(new), strict=True):
            _rename(one, other)
        if isinstance(old, paddle.amp.AmpScaler) and hasattr(old, "_optimizer_states"):
            states = {id(memo.get(key, key)): state for key, state in new._optimizer_states.items()}
            new._optimizer_states.clear()
            new._optimizer_states.update({key: state for key, state in states.items() if key in map(id, made)})
        for layer in new.sublayers(include_self=True) if isinstance(new, paddle.nn.Layer) else ():
            let_go(layer)
    return made


def _copy_of(backend: Backend, tensor: Tensor) -> Tensor:
    """A copy of a tensor where it is; of a parameter, another parameter."""
    device = backend.device_of(tensor)
    made = backend.snapshot(tensor)
    if isinstance(tensor, paddle.base.framework.EagerParamBase):
        with open_scope(device):
            parameter = copy.deepcopy(tensor)
        exchange(parameter)[1](made)
        made, parameter.stop_gradient = parameter, tensor.stop_gradient
    else:
        made.stop_gradient = tensor.stop_gradient or not tensor.is_leaf
    made.persistable = tensor.persistable
    made.name = _new_name(tensor.name)
    return made


def _give_gradient(backend: Backend, source: Tensor, target: Tensor) -> None:
    gradient = source.grad
    if gradient.is_selected_rows():
        raise UnsupportedError(
            "the gradient of a sparse embedding cannot be copied", "copy the model before backward(), or after the step"
        )
    made = backend.snapshot(gradient)
    with open_scope(backend.device_of(target)):
        target.grad = made
    exchange(target.grad)[1](made)


def _new_name(name: str) -> str:
    """Another name, which ends in the same way, copies of copies included."""
    return f"{unique_name.generate('copy')}.{name.partition('.')[2] if name.startswith('copy_') else name}"


# ---------------------------------------------------------------------- optimizers
def _optimizers_in(whole: Any) -> list[Any]:
    """An optimizer and those that it wraps."""
    if not isinstance(whole, paddle.optimizer.Optimizer):
        return []
    return [whole, *(each for inner in inner_of(whole).values() for each in _optimizers_in(inner))]


def _require_together(wholes: Sequence[Any]) -> None:
    """Refuse to copy an optimizer without its model.

    Raises:
        UnsupportedError: The copy would train parameters that nobody has.
    """
    layers = [whole for whole in wholes if isinstance(whole, paddle.nn.Layer)]
    copied = {id(p) for layer in layers for p in layer.parameters()}
    for whole in wholes:
        if any(id(p) not in copied for each in _optimizers_in(whole) for p in parameters_of(each)):
            raise UnsupportedError(
                f"a copy of this {type(whole).__name__} alone would train copies of parameters that no model has",
                "copy it together with its model: ds.copy([model, optimizer], device)",
            )


def _rename(old: Any, new: Any) -> None:
    """Have an optimizer's copy keep by its parameters' names what it has by those of the parameters copied."""
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
        new._apply_decay_param_fun = _ByOldName(decays, names)


class _ByOldName:
    """A function of a parameter's name, asked about the parameter that it was copied from."""

    def __init__(self, function: Callable[[str], Any], names: dict[str, str]) -> None:
        self._function = function
        self._names = {new: old for old, new in names.items()}

    def __call__(self, name: str) -> Any:
        return self._function(self._names.get(name, name))
