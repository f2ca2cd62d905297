"""Making a model compute where its tensors are: scopes, lazy parameters, recurrent weights, and hooks that copy inputs.

Requirements that this module meets:

* The result of ``model(x)`` is on the model's device, regardless of PaddlePaddle's current place: what the model
  creates besides its inputs (an LSTM's first state, a mask) is created there. On a machine without cards, a model is
  as Paddle made it.
* In a model over several devices, each part on one device copies its inputs there, and tensors that meet in the code of
  a layer with such parts are copied to one device; see ``split_forward.py``.
* A layer that cannot compute over several devices is refused, and the whole move is undone.
* Parameters made under ``LazyGuard`` get their memory where they were placed (``internals/lazy_parameters.py``).
* A recurrent layer's weights, once moved, do not keep alive the block that they were cut from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devshim.errors import UnsupportedError
from devshim_backends._paddle.devices import has_cards
from devshim_backends._paddle.models import optimizer_step
from devshim_backends._paddle.models.internals.lazy_parameters import place_lazy
from devshim_backends._paddle.models.split_forward import (
    METHOD,
    CallHook,
    devices_of,
    install_hook,
    is_called,
    is_chain,
    own_devices_of,
    tensors_of,
)
from devshim_backends._paddle.models.storage_swap import release_flat_weight

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.contract.backend import Backend, Tensor
    from devshim.devices.device import Device

    Undo = Callable[[], None]

__all__ = ["install_hooks"]


def install_hooks(backend: Backend, model: Any, where: Callable[[str], Device]) -> Undo:
    """Make a model compute where its tensors are; see `devshim.contract.models.ModelBackend.install_hooks`."""
    layers = model.sublayers(include_self=True)
    undo: list[Undo] = [_save_hooks(layer) for layer in layers]

    def undo_all() -> None:
        for step in reversed(undo):
            step()

    try:
        place_lazy("", model, where, undo)
        for layer in layers:
            _uninstall_hook(layer, layers)
            undo.append(release_flat_weight(layer))
        hook = _get_hook(model)
        if hook is not None:  # it is a part of a split model, whose other parts have not moved
            hook.uninstall()
            _install_split_hooks(hook.model, "", model, hook.results_to)
        elif len(devices_of(model)) > 1:
            _install_split_hooks(model, "", model, None)
        elif devices_of(model) and has_cards(backend):
            install_hook(model, CallHook(model, model))
        optimizer_step.install(backend)
    except BaseException:
        undo_all()
        raise
    return undo_all


# ---------------------------------------------------------------------- hooks
def _install_split_hooks(model: Any, path: str, layer: Any, results_to: Any) -> None:
    """Make a layer's parts copy their inputs, and return their results to the layer that contains them.

    Args:
        model: The whole model.
        path: The layer's name.
        layer: A layer that may have parts on several devices.
        results_to: The tensor to whose device the results are copied, or None if each result goes to the next part.
    """
    devices, called = devices_of(layer), is_called(layer)
    if len(devices) < 2 and called:
        install_hook(layer, CallHook(model, layer, moves_inputs=bool(devices), results_to=results_to))
        return
    if len(devices) > 1:
        _refuse_split_layer(path, layer)
    inside = results_to
    if called:
        inside = None if is_chain(layer) else _find_alignment_tensor(layer)
        install_hook(
            layer, CallHook(model, layer, computes_with=inside, moves_inputs=inside is not None, results_to=results_to)
        )
    for name, child in layer._sub_layers.items():
        if child is not None:
            _install_split_hooks(model, f"{path}.{name}" if path else name, child, inside)


def _find_alignment_tensor(layer: Any) -> Tensor:
    """Return the tensor on whose device a layer's parts meet: one of the layer's own, or the last of all in it."""
    own = list(tensors_of(layer))
    return own[0] if own else [tensor for each in layer.sublayers() for tensor in tensors_of(each)][-1]


def _get_hook(layer: Any) -> CallHook | None:
    hook = vars(layer).get(METHOD)
    return hook if isinstance(hook, CallHook) else None


def _uninstall_hook(layer: Any, layers: list[Any]) -> None:
    """Uninstall a layer's hook, unless it belongs to a model around the one that is placed now."""
    hook = _get_hook(layer)
    if hook is not None and (hook.model is None or any(hook.model is each for each in layers)):
        hook.uninstall()


def _save_hooks(layer: Any) -> Undo:
    own, hooks = vars(layer), layer._forward_pre_hooks
    call, items = own.get(METHOD), list(hooks.items())

    def restore() -> None:
        hooks.clear()
        hooks.update(items)
        own.pop(METHOD, None) if call is None else own.update({METHOD: call})

    return restore


def _refuse_split_layer(path: str, layer: Any) -> None:
    """Refuse to split a layer whose own tensors are used together in one operator.

    Raises:
        UnsupportedError: The layer is split.
    """
    what = f"{path or 'the model'} ({type(layer).__name__})"
    if "forward" in vars(layer):
        msg = f"{what} is compiled by to_static, which cannot copy tensors between devices"
        raise UnsupportedError(msg, "place it on one device, or split the model before paddle.jit.to_static")
    devices = own_devices_of(layer)
    if len(devices) > 1:
        names = " and ".join(map(str, devices))
        msg = f"the tensors of {what} would be on {names}, but it uses them in the same operator"
        raise UnsupportedError(msg, f"place all of {path or 'it'} on one device")
