"""Making a model compute where its tensors are: scopes, parts without memory, recurrent weights, and carried inputs.

Requirements this module answers:

* ``model(x)`` gives its result where the model is, whatever PaddlePaddle's current place is: what it makes besides its
  inputs (an LSTM's first state, a mask) is made there.  On a machine without cards a model is as Paddle made it.
* On a model over several devices, each part on one device carries its inputs there, and what meets in the code of a
  layer that has such parts is brought to one device; see ``splitting.py``.
* What cannot compute over several devices is refused, and the move with it.
* Parameters made under ``LazyGuard`` get their memory where they were placed (``lazy.py``).
* A recurrent layer's weights, once moved, do not hold the block that they were cut from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devshim.errors import UnsupportedError
from devshim_backends._paddle.models import optimizer_step
from devshim_backends._paddle.models.lazy_parameters import place_lazy
from devshim_backends._paddle.models.split_forward import (
    METHOD,
    Wire,
    devices_of,
    is_called,
    is_chain,
    own_devices_of,
    put_on,
    tensors_of,
)
from devshim_backends._paddle.models.storage_swap import let_go

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.contract.backend import Backend, Tensor
    from devshim.devices.device import Device

    Undo = Callable[[], None]

__all__ = ["rewire"]


def rewire(backend: Backend, model: Any, where: Callable[[str], Device]) -> Undo:
    """Have a model compute where its tensors are; see `devshim.contract.models.Wholes.rewire`."""
    layers = model.sublayers(include_self=True)
    undo: list[Undo] = [_put_back_wires(layer) for layer in layers]

    def take_back() -> None:
        for each in reversed(undo):
            each()

    try:
        place_lazy("", model, where, undo)
        for layer in layers:
            _take_off_wires(layer, layers)
            undo.append(let_go(layer))
        around = _wire_of(model)
        if around is not None:  # it is a part of a split model, whose other parts are as they were
            around.take_off()
            _wire(around.model, "", model, around.home)
        elif len(devices_of(model)) > 1:
            _wire(model, "", model, None)
        elif devices_of(model) and any(backend.count(kind) for kind in backend.kinds()):
            put_on(model, Wire(model, model))
        optimizer_step.attach(backend)
    except BaseException:
        take_back()
        raise
    return take_back


# ---------------------------------------------------------------------- wires
def _wire(model: Any, path: str, layer: Any, home: Any) -> None:
    """Have a layer's parts carry their inputs, and give their results to the layer that has them.

    Args:
        model: The whole model.
        path: The layer's name.
        layer: One that may have parts on several devices.
        home: The tensor where results meet, or None where each goes to the next part.
    """
    found, called = devices_of(layer), is_called(layer)
    if len(found) < 2 and called:
        put_on(layer, Wire(model, layer, carries=bool(found), home=home))
        return
    if len(found) > 1:
        _refuse_torn(path, layer)
    inside = home
    if called:
        inside = None if is_chain(layer) else _meeting(layer)
        put_on(layer, Wire(model, layer, here=inside, carries=inside is not None, home=home))
    for name, child in layer._sub_layers.items():
        if child is not None:
            _wire(model, f"{path}.{name}" if path else name, child, inside)


def _meeting(layer: Any) -> Tensor:
    """The tensor where a layer's parts meet: one of its own, which its code uses, or the last of them all."""
    own = list(tensors_of(layer))
    return own[0] if own else [tensor for each in layer.sublayers() for tensor in tensors_of(each)][-1]


def _wire_of(layer: Any) -> Wire | None:
    found = vars(layer).get(METHOD)
    return found if isinstance(found, Wire) else None


def _take_off_wires(layer: Any, layers: list[Any]) -> None:
    """Take a layer's wire off, unless it is that of a model around the one that is placed now."""
    wire = _wire_of(layer)
    if wire is not None and (wire.model is None or any(wire.model is each for each in layers)):
        wire.take_off()


def _put_back_wires(layer: Any) -> Undo:
    own, hooks = vars(layer), layer._forward_pre_hooks
    call, items = own.get(METHOD), list(hooks.items())

    def take_back() -> None:
        hooks.clear()
        hooks.update(items)
        own.pop(METHOD, None) if call is None else own.update({METHOD: call})

    return take_back


def _refuse_torn(path: str, layer: Any) -> None:
    """Refuse to tear a layer whose own tensors meet in one operator.

    Raises:
        UnsupportedError: It is one.
    """
    what = f"{path or 'the model'} ({type(layer).__name__})"
    if "forward" in vars(layer):
        raise UnsupportedError(
            f"{what} is compiled by to_static, which carries nothing between devices",
            "place it on one device, or split the model before paddle.jit.to_static",
        )
    found = own_devices_of(layer)
    if len(found) > 1:
        raise UnsupportedError(
            f"the tensors of {what} would be on {' and '.join(map(str, found))}, and it computes with them together",
            f"place all of {path or 'it'} on one device",
        )
