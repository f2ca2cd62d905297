"""The check that the arrays of an operator are on one device, which MXNet does not make for simulated GPUs.

MXNet compares only the kinds of devices, so it refuses a CPU with a card. Simulated GPUs are CPUs for MXNet, and it
would mix them silently. These functions compare the devices; `hooks` calls them before each operator.
"""

from __future__ import annotations

import sys
from ctypes import c_void_p
from typing import TYPE_CHECKING, Any

import mxnet as mx

from devshim.devices.device import CPU
from devshim.errors import DeviceMismatchError, JoinedError
from devshim_backends._mxnet.devices import device_from_code
from devshim_backends._mxnet.internals.native import device_code
from devshim_backends._mxnet.simulation.native_names.names import move_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devshim.devices.device import Device
    from devshim.simulation.memory import SimulatedDevices
    from devshim_backends._mxnet.tensors import MxnetTensors


class MixedDevicesError(JoinedError, DeviceMismatchError, mx.MXNetError):  # type: ignore[misc]  # MXNet is Any to the type checker
    """The error of a simulated GPU that replaces MXNet's: both ``except MXNetError`` and devshim's error catch it."""


def mixed_devices(first: Device, second: Device) -> MixedDevicesError:
    """Return the error for an operator with arrays on two devices."""
    line = move_line(first) or f"ds.place(x, {str(first)!r})"
    return MixedDevicesError(f"an MXNet operator got arrays on {first} and {second}", f"move one of them first: {line}")


def check_operands(backend: MxnetTensors, arrays: Sequence[Any]) -> None:
    """Raise an error if the arrays of an operator are on different devices, or on a GPU that has vanished."""
    # The class's method: that of the instance may record which blocks ask for devices (see `recompiling`).
    device_of = type(backend).device_of
    first = device_of(backend, arrays[0])
    for x in arrays[1:]:
        device = device_of(backend, x)
        if device is not first and not (_is_callback() if CPU in (first, device) else _is_metric()):
            raise mixed_devices(first, device)
    if first is not CPU:
        gpus: SimulatedDevices = backend.simulated_devices  # type: ignore[assignment]  # it has some
        gpus[first.index].check_alive("an operator")


def check_gradients(backend: MxnetTensors, count: int, arrays: Any, gradients: Any) -> None:
    """Raise an error if a gradient is not on the device of its array; both are C arrays of handles, null for none."""
    for i in range(count):
        device, gradient = device_of_handle(backend, arrays[i]), device_of_handle(backend, gradients[i])
        if gradient is not None and device is not gradient:
            raise mixed_devices(device or CPU, gradient)


class _HandleOnly:
    """An object with an array's handle, for functions that read the handle of an array."""

    def __init__(self, handle: int) -> None:
        self.handle = c_void_p(handle)


def device_of_handle(backend: MxnetTensors, handle: Any) -> Device | None:
    """Return the device of a handle, as for `address_in`; None if it is null."""
    address = address_in(handle)
    return device_from_code(device_code(_HandleOnly(address)), backend.simulated_or_removed) if address else None


def address_in(handle: Any) -> int:
    """Return the address in a handle, which ctypes passes as a number, as None or as an object; 0 if it is null."""
    return int(getattr(handle, "value", handle) or 0)


_CALLING = ("mxnet.operator", "mxnet.kvstore.kvstore")
"""The modules of MXNet with functions that its C library calls with arrays which do not say where they are."""


def _is_metric() -> bool:
    """Return True if a metric of MXNet 2 itself adds up the results of several GPUs, as it does on real ones."""
    frame = sys._getframe(1)
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if module == "mxnet.gluon.metric" and frame.f_code.co_name == "update":
            return True
        if module.partition(".")[0] not in ("mxnet", "devshim", "devshim_backends"):
            return False  # a program's function, which a metric may call
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _is_callback() -> bool:
    """Return True if MXNet has called back into Python: for a deprecated ``NDArrayOp``, or a kvstore's optimizer.

    In these calls MXNet labels arrays as the host's that would be on the card with real cards: ``NDArray(TBlob,
    dev_id)`` does not know the number of a CPU, and a kvstore keeps the sums for CPUs on the host. Arrays that MXNet
    itself mislabels must not be refused. A ``CustomOp`` knows its device as ``ctx`` (see `python_operators`).
    """
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name.endswith(("_entry", "_handle")) and frame.f_globals.get("__name__") in _CALLING:
            return "ctx" not in frame.f_code.co_freevars
        frame = frame.f_back  # type: ignore[assignment]
    return False
