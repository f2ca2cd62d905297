"""Patches that make an optimizer's step compute where its parameters are, regardless of PaddlePaddle's current place.

Requirements that this module meets:

* On real cards Paddle computes on the process-wide card, and gives the result new memory there: an optimizer's step
  pulls weights that were moved back to it (3.0 to 3.3). Here a step runs in a scope of its parameters' device, and
  the work for one parameter in a scope of that parameter's device. This is also true of an optimizer that was made
  after its model had been split.
* State that stayed behind when the model moved is an error, and not a computation across devices.
* All parameters share one tensor of the learning rate, which moves from one device to the next.
* An optimizer that computes with the parameters of several devices at the same time is refused, and the whole move is
  undone.
* On a machine without cards, and before a model or optimizer is placed on one that has some, Paddle is unchanged.
"""

from __future__ import annotations

from functools import update_wrapper
from typing import TYPE_CHECKING, Any

import paddle

from devshim.errors import DeviceMismatchError, UnsupportedError
from devshim_backends._paddle.devices import core, device_at, has_cards
from devshim_backends._paddle.models.optimizers import parameters_of
from devshim_backends._paddle.scopes import open_scope
from devshim_backends._paddle.simulation.internals import error_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from devshim.contract.backend import Backend, Tensor
    from devshim.devices.device import Device

__all__ = ["install", "install_hooks", "wrap_methods"]

_STEP_METHODS = ("step", "minimize")
"""Methods that compute where the first parameter is."""
_PARAMETER_METHODS = ("_append_optimize_op", "_add_accumulator")
"""Methods whose second argument is, or contains, the parameter that they handle."""

_installed = False


def install_hooks(backend: Backend, optimizer: Any) -> Callable[[], None]:
    """Refuse an optimizer that cannot compute where its parameters are; see `ModelBackend.install_hooks`."""
    install(backend)
    found = dict.fromkeys(backend.device_of(each) for each in parameters_of(optimizer) if each._is_initialized())
    if len(found) > 1:
        _refuse_several_devices(optimizer, list(found))
    return lambda: None


def install(backend: Backend) -> None:
    """Make the steps of all optimizers follow their parameters from now on, if this machine has cards.

    Simulated GPUs install and uninstall these patches themselves.
    """
    global _installed
    if not _installed and not backend.simulated and has_cards(backend):
        _installed = True
        for cls, name, wrapper in list(wrap_methods()):
            setattr(cls, name, wrapper)


def wrap_methods() -> Iterator[tuple[type, str, Any]]:
    """Yield Paddle's optimizer classes, the names of their methods, and the replacements."""
    for cls in (paddle.optimizer.Optimizer, *_subclasses(paddle.optimizer.Optimizer)):
        for name in (*_STEP_METHODS, *_PARAMETER_METHODS):
            if name in vars(cls):
                yield cls, name, (_wrap_step if name in _STEP_METHODS else _wrap_parameter_method)(vars(cls)[name])


def _subclasses(cls: type) -> Iterator[type]:
    found: list[type] = type.__subclasses__(cls)
    for each in found:
        yield each
        yield from _subclasses(each)


# ---------------------------------------------------------------------- the replacements
def _wrap_step(original: Any) -> Any:
    """Return a step that runs in a scope of the first parameter's device."""

    def step(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        device = _get_device(next(iter(parameters_of(optimizer)), None))
        if device is None:
            return original(optimizer, *args, **kwargs)
        _move_learning_rate(optimizer, device)
        with open_scope(device):
            return original(optimizer, *args, **kwargs)

    return update_wrapper(step, original)


def _wrap_parameter_method(original: Any) -> Any:
    """Return a method that handles one parameter in a scope of its device."""

    def call(optimizer: Any, first: Any, second: Any, *args: Any, **kwargs: Any) -> Any:
        parameter = _find_parameter(second)
        device = _get_device(parameter)
        if device is None:
            return original(optimizer, first, second, *args, **kwargs)
        _require_state_on(optimizer, parameter, device)
        _move_learning_rate(optimizer, device)
        with open_scope(device):
            return original(optimizer, first, second, *args, **kwargs)

    def call_by_name(optimizer: Any, name: Any = None, param: Any = None, *args: Any, **kwargs: Any) -> Any:
        return call(optimizer, name, param, *args, **kwargs)

    return update_wrapper(call_by_name if original.__name__ == "_add_accumulator" else call, original)


def _find_parameter(argument: Any) -> Any:
    """Return the parameter of a (parameter, gradient) pair, or of a group's settings that contain a pair."""
    if isinstance(argument, dict):
        argument = argument.get("params")
    return argument[0] if isinstance(argument, (tuple, list)) and argument else argument


def _get_device(parameter: Any) -> Device | None:
    """Return a parameter's device; None without a device to follow, as in a program that is being built."""
    if not isinstance(parameter, core.eager.Tensor) or not parameter._is_initialized():
        return None
    return device_at(parameter.place)


def _iter_state(optimizer: Any, parameter: Tensor) -> Iterator[Tensor]:
    """Yield the state of one parameter, stored under its name or that of its master weight."""
    master = (optimizer._master_weights or {}).get(parameter.name)
    if master is not None:
        yield master
    for tensors in optimizer._accumulators.values():
        found = tensors.get(parameter.name if master is None else master.name)
        if found is not None:
            yield found


def _require_state_on(optimizer: Any, parameter: Tensor, device: Device) -> None:
    """Refuse state that stayed behind; single numbers may be anywhere, as Paddle has them.

    Raises:
        DeviceMismatchError: Some state is on another device.
    """
    for tensor in _iter_state(optimizer, parameter):
        found = _get_device(tensor)
        if found is not None and found is not device and tensor.size > 1:
            msg = (
                f"the state of this {type(optimizer).__name__} is on {found}, and its parameter {parameter.name} is on "
                f"{device}: the model was moved without its optimizer"
            )
            hint = "move both: ds.place([model, optimizer], device)"
            raise DeviceMismatchError(msg, "move the model before the first step" if error_texts.is_native() else hint)


def _move_learning_rate(optimizer: Any, device: Device) -> None:
    """Move the tensor of the learning rate to its next device: on a card it would pull the host's weights there.

    It is created again from the number that Paddle made it from.
    """
    rates = optimizer._learning_rate_map
    for program, rate in list(rates.items()):
        found = _get_device(rate)
        if found is not None and found is not device:
            with open_scope(device):
                rates[program] = paddle.full(rate.shape, float(optimizer.get_lr()), rate.dtype)


# ---------------------------------------------------------------------- refusals
def _refuse_several_devices(optimizer: Any, devices: list[Device]) -> None:
    """Refuse parameters on several devices if a step computes with all of them together.

    Raises:
        UnsupportedError: The optimizer has a step of this kind.
    """
    names = " and ".join(map(str, devices))
    what = type(optimizer).__name__
    if isinstance(optimizer, paddle.optimizer.LBFGS):
        msg = f"{what} has one vector for all parameters, and these are on {names}"
        raise UnsupportedError(msg, "place them on one device")
    if getattr(optimizer, "_use_multi_tensor", None):
        msg = f"{what}(use_multi_tensor=True) computes with all parameters together, and these are on {names}"
        raise UnsupportedError(msg, "leave use_multi_tensor out, or place them on one device")
    if isinstance(optimizer._grad_clip, paddle.nn.ClipGradByGlobalNorm):
        msg = f"ClipGradByGlobalNorm adds up the gradients of all parameters, and these are on {names}"
        raise UnsupportedError(
            msg,
            "clip with paddle.nn.ClipGradByNorm or ClipGradByValue, or place them on one device",
        )
