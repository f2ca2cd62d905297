"""The functions of the CUDA runtime that devshim calls."""

from __future__ import annotations

from cupy import _machine

is_hip = False


class CUDARuntimeError(RuntimeError):
    pass


def _start() -> None:
    if _machine.ERRORS:
        raise CUDARuntimeError(_machine.ERRORS[0])


def getDeviceCount() -> int:
    _start()
    return _machine.GPU_COUNT


def getDevice() -> int:
    return _machine.current()


def setDevice(gpu: int) -> None:
    _start()
    if not 0 <= gpu < _machine.GPU_COUNT:
        raise CUDARuntimeError("cudaErrorInvalidDevice: invalid device ordinal")
    _machine.set_current(gpu)


def memGetInfo() -> tuple[int, int]:
    gpu = _machine.current()
    _machine.contexts.add(gpu)
    return _machine.BYTES - _machine.allocated[gpu] - _machine.cached[gpu], _machine.BYTES


def getDeviceProperties(gpu: int) -> dict[str, object]:
    _start()
    if not 0 <= gpu < _machine.GPU_COUNT:
        raise CUDARuntimeError("cudaErrorInvalidDevice: invalid device ordinal")
    numbers = {"major": 9, "minor": 0, "pciDomainID": 0, "pciBusID": 59 + gpu, "pciDeviceID": 0}
    return {"name": b"Stub GPU", "totalGlobalMem": _machine.BYTES, "uuid": bytes([17] * 15 + [gpu]), **numbers}
