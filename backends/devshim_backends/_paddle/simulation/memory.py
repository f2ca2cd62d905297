"""The memory and the faults of simulated GPUs, counted in the plug-in, where Paddle allocates.

`devshim.simulation.memory` defines what the counts mean.  Here every count is read from ``simulated_gpus.cc``, which
sees what Paddle's own operators allocate, in any thread.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from devshim.devices.device import Device
from devshim.devices.info import MemoryInfo
from devshim.errors import DevshimError, OutOfMemoryError, messages
from devshim.simulation.memory import EVENTS, SimulatedDevice, SimulatedDevices
from devshim_backends._paddle.simulation import plugin

if TYPE_CHECKING:
    from collections.abc import Iterable

    from devshim.simulation.memory import Fault

__all__ = ["SIMULATED", "failure"]

_NO_LIMIT = -1


class _Fault(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_longlong) for name in ("what", "at", "times"))


class _State(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_longlong) for name in ("used", "peak", "lost"))


class _Failure(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_longlong) for name in ("card", "bytes", "room", "lost"))


def _functions() -> ctypes.CDLL:
    found = plugin.library()
    assert found is not None, "there are no cards before the plug-in is loaded"
    return found


class PaddleCard(SimulatedDevice):
    """A simulated GPU whose memory Paddle's allocator counts; `track`, `take` and `give` are not used."""

    def begin(self, limit: int | None, faults: Iterable[Fault] = ()) -> None:
        self.limit, self.lost = limit, False
        mine = [fault for fault in faults if fault.device is self.device]
        told = (_Fault * len(mine))(*[_Fault(EVENTS.index(fault.what), fault.at, fault.times) for fault in mine])
        given = ctypes.c_longlong(_NO_LIMIT if limit is None else limit)
        _functions().devshim_begin(self.device.index, given, told, len(mine))

    def check_alive(self, what: str) -> None:
        self._state()
        super().check_alive(what)

    def copying(self, what: str) -> None:
        if _functions().devshim_copying(self.device.index):
            raise messages.device_failed(self.device, what)

    def reset_peak(self) -> None:
        _functions().devshim_reset_peak(self.device.index)

    def info(self) -> MemoryInfo:
        state = self._state()
        self._used = state.used
        return MemoryInfo(total=self.limit, used=state.used, free=self._free(), peak=state.peak)

    def _state(self) -> _State:
        found = _State()
        _functions().devshim_state(self.device.index, ctypes.byref(found))
        self.lost = bool(found.lost)
        return found


class _PaddleCards(SimulatedDevices):
    def new(self, device: Device) -> SimulatedDevice:
        return PaddleCard(device, self._full)


SIMULATED = _PaddleCards()
"""The GPUs simulated so far. A full one raises `OutOfMemoryError`, which is a `MemoryError` like Paddle's own error."""


def failure() -> DevshimError | None:
    """Return the error for what has just failed on this thread in the plug-in, or None."""
    functions = plugin.library()
    found = _Failure()
    if functions is None or not functions.devshim_failure(ctypes.byref(found)):
        return None
    device = Device("gpu", found.card)
    if found.lost:
        what = "a copy" if found.lost == 2 else "an allocation"
        return messages.device_failed(device, f"{what} of {found.bytes:,} bytes")
    return messages.full(device, found.bytes, None if found.room == _NO_LIMIT else found.room, OutOfMemoryError)
