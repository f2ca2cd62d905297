"""The memory and the faults of simulated GPUs, counted in the plug-in, where Paddle allocates.

`devshim.simulation.memory` defines what the counts mean. Here every count is read from ``simulated_gpus.cc``, which
sees what Paddle's own operators allocate, in any thread.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from devshim.devices.device import Device
from devshim.devices.info import MemoryInfo
from devshim.errors import DevshimError, JoinedError, OutOfMemoryError, SimulationError, messages
from devshim.simulation.memory import EVENTS, SimulatedDevice, SimulatedDevices
from devshim_backends._paddle.simulation.internals import plugin

if TYPE_CHECKING:
    from collections.abc import Iterable

    from devshim.simulation.memory import Fault

__all__ = ["SIMULATED", "take_failure"]

_NO_LIMIT = -1


class _Fault(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_longlong) for name in ("what", "at", "times"))


class _State(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_longlong) for name in ("used", "peak", "lost", "cuda_used", "cuda_peak"))


class _Failure(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_longlong) for name in ("gpu", "bytes", "free", "lost"))


def _plugin() -> ctypes.CDLL:
    library = plugin.library()
    assert library is not None, "there are no simulated GPUs before the plug-in is loaded"
    return library


class PaddleSimulatedDevice(SimulatedDevice):
    """A simulated GPU whose memory Paddle's allocator counts; `track` is not used."""

    def begin(self, limit: int | None, faults: Iterable[Fault] = ()) -> None:
        self.limit, self.vanished = limit, False
        own = [fault for fault in faults if fault.device is self.device]
        array = (_Fault * len(own))(*[_Fault(EVENTS.index(fault.what), fault.at, fault.times) for fault in own])
        bytes_limit = ctypes.c_longlong(_NO_LIMIT if limit is None else limit)
        _plugin().devshim_begin(self.device.index, bytes_limit, array, len(own))

    def check_alive(self, what: str) -> None:
        self._state()
        super().check_alive(what)

    def count_copy(self, what: str) -> None:
        if _plugin().devshim_copying(self.device.index):
            raise messages.device_failed(self.device, what)

    def reset_peak(self) -> None:
        _plugin().devshim_reset_peak(self.device.index)

    def info(self) -> MemoryInfo:
        state = self._state()
        self._used = state.used
        return MemoryInfo(total=self.limit, used=state.used, free=self._free(), peak=state.peak)

    def cuda_bytes(self) -> tuple[int, int]:
        """Return the used and the peak bytes as Paddle's own counters show them for CUDA, in multiples of 256."""
        state = self._state()
        return state.cuda_used, state.cuda_peak

    def reset_cuda_peak(self) -> None:
        """Make the peak of `cuda_bytes` the used bytes."""
        _plugin().devshim_reset_cuda_peak(self.device.index)

    def _state(self) -> _State:
        state = _State()
        _plugin().devshim_state(self.device.index, ctypes.byref(state))
        self.vanished = bool(state.lost)
        return state


class FullDeviceError(JoinedError, OutOfMemoryError):
    """The error for a full simulated GPU: a `MemoryError`, like Paddle's."""

    @classmethod
    def _real_text(cls, device: Device, nbytes: int | None, free: int | None) -> str | None:
        wanted = "memory" if nbytes is None else f"{_readable(nbytes)} memory"
        left = "" if free is None else f", and available memory is only {_readable(free)}"
        return (
            f"ResourceExhaustedError: Out of memory error on GPU {device.index}. "
            f"Cannot allocate {wanted} on GPU {device.index}{left}."
        )


class RemovedDeviceError(JoinedError, SimulationError, OSError):
    """The error for a tensor on a simulated GPU that was removed: an `OSError`, as Paddle's for errors of CUDA."""

    _real_text = "(External) CUDA error(700), an illegal memory access was encountered."


def _readable(nbytes: int) -> str:
    """Return a number of bytes as Paddle writes it."""
    amount, units = float(nbytes), ["B", "KB", "MB", "GB"]
    while amount >= 1024 and len(units) > 1:
        amount /= 1024
        del units[0]
    return f"{amount:f}{units[0]}"


class _PaddleSimulatedDevices(SimulatedDevices):
    removed_error = RemovedDeviceError

    def new(self, device: Device) -> PaddleSimulatedDevice:
        return PaddleSimulatedDevice(device, self._error_class)


SIMULATED = _PaddleSimulatedDevices(FullDeviceError)
"""The GPUs simulated so far."""


def take_failure() -> DevshimError | None:
    """Return the error for the last failure of a simulated GPU in this thread, once; None if nothing has failed."""
    library = plugin.library()
    failure = _Failure()
    if library is None or not library.devshim_take_failure(ctypes.byref(failure)):
        return None
    device = Device("gpu", failure.gpu)
    if failure.lost:
        what = "a copy" if failure.lost == 2 else "an allocation"
        return messages.device_failed(device, f"{what} of {failure.bytes:,} bytes")
    return messages.full_device(
        device, failure.bytes, None if failure.free == _NO_LIMIT else failure.free, FullDeviceError
    )
