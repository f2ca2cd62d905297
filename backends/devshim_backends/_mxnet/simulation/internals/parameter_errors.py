"""A patch that makes Gluon's error for a parameter on another device name simulated GPUs.

MXNet (1.9.1, 2.0.0b1) reports the context that a parameter is on; simulated GPUs are its ``cpu(1)`` to ``cpu(N)``. With
native names it reports ``gpu(0)``, so the error has its text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mxnet.gluon import Parameter

from devshim.devices.device import CPU
from devshim.errors import DeviceMismatchError, JoinedError
from devshim_backends._mxnet.devices import device_from_code
from devshim_backends._mxnet.internals.native import device_code
from devshim_backends._mxnet.simulation.native_names.names import move_line

if TYPE_CHECKING:
    from devshim.contract.backend import Backend
    from devshim.devices.device import Device

_check_and_get = Parameter._check_and_get
_backend: Backend | None = None


class ParameterDeviceError(JoinedError, DeviceMismatchError, RuntimeError):
    """The error for a parameter on another device: devshim's error and Gluon's ``RuntimeError`` in one."""


def install(backend: Backend) -> None:
    """Make Gluon's error name simulated GPUs from now on."""
    global _backend
    _backend = backend
    Parameter._check_and_get = _check_and_get_named


def uninstall() -> None:
    """Restore Gluon's own method."""
    global _backend
    _backend = None
    Parameter._check_and_get = _check_and_get


def _check_and_get_named(parameter: Any, arrays: Any, native: Any) -> Any:
    """Return the array of a parameter on a device, as Gluon does."""
    try:
        return _check_and_get(parameter, arrays, native)
    except RuntimeError as error:
        if type(error) is not RuntimeError or not arrays or not hasattr(native, "device_typeid"):
            raise
        backend = _backend
        requested = (None if backend is None else backend.from_native(native)) or CPU
        devices = [_device(device_code(x)) for x in arrays]
        _require_shown(devices)
        line = move_line(devices[0])
        if line is not None:
            raise ParameterDeviceError(str(error), f"move the input: {line}") from error
        msg = (
            f"Parameter {parameter.name!r} was not initialized on {_show(requested)}, only on "
            f"{', '.join(map(_show, devices))}"
        )
        raise ParameterDeviceError(
            msg,
            f"move the input with ds.place(x, {str(devices[0])!r}), or the model with "
            f"ds.place(net, {str(requested)!r})",
        ) from error


def _device(code: int) -> Device:
    backend = _backend
    return device_from_code(code, 0 if backend is None else backend.simulated_or_removed) or CPU


def _require_shown(devices: list[Device]) -> None:
    """Raise if a parameter is on a simulated GPU that was removed; native names may have been switched with it."""
    backend = _backend
    gpus = None if backend is None else backend.simulated_devices
    for device in devices:
        if gpus is not None and device is not CPU:
            gpus[device.index].require_shown()


def _show(device: Device) -> str:
    return str(device) if device is CPU else f"{device} (simulated)"
