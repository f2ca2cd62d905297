"""Making a model compute where its tensors are: scopes, lazy parameters, recurrent weights, and hooks that copy inputs.

Requirements that this module meets:

* The result of ``model(x)`` is on the model's device, whatever PaddlePaddle's current place is: what the model creates
  besides its inputs (an LSTM's first state, a mask) is created there.  On a machine without cards, a model is as Paddle
  made it.
* In a model over several devices, each part on one device copies its inputs there, and tensors that meet in the code of
  a layer with such parts are copied to one device; see ``split_forward.py``.
* A layer that cannot compute over several devices is refused, and the whole move is undone.
* Parameters made under ``LazyGuard`` get their memory where they were placed (``lazy_parameters.py``).
* A recurrent layer's weights, once moved, do not keep alive the block that they were cut from.
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

__all__ = ["install_hooks"]


def install_hooks(backend: Backend, model: Any, where: Callable[[str], Device]) -> Undo:
    """Make a model compute where its tensors are; see `devshim.contract.models.ModelBackend.install_hooks`."""
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
        if around is not None:  # it is a part of a split model, whose other parts have not moved
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


# ---------------------------------------------------------------------- hooks
def _wire(model: Any, path: str, layer: Any, home: Any) -> None:
    """Make a layer's parts copy their inputs, and return their results to the layer that contains them.

    Args:
        model: The whole model.
        path: The layer's name.
        layer: A layer that may have parts on several devices.
        home: The tensor on whose device results meet, or None if each goes to the next part.
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
    """Return the tensor on whose device a layer's parts meet: one of the layer's own, or the last of all in it."""
    own = list(tensors_of(layer))
    return own[0] if own else [tensor for each in layer.sublayers() for tensor in tensors_of(each)][-1]


def _wire_of(layer: Any) -> Wire | None:
    found = vars(layer).get(METHOD)
    return found if isinstance(found, Wire) else None


def _take_off_wires(layer: Any, layers: list[Any]) -> None:
    """Uninstall a layer's hook, unless it belongs to a model around the one that is placed now."""
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
    """Refuse to split a layer whose own tensors are used together in one operator.

    Raises:
        UnsupportedError: The layer is split.
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
