"""The functions of the CUDA runtime that devshim calls."""

from __future__ import annotations

from cupy import _machine

is_hip = False


class CUDARuntimeError(RuntimeError):
    pass


def _start() -> None:
    if _machine.BROKEN:
        raise CUDARuntimeError(_machine.BROKEN[0])


def getDeviceCount() -> int:
    _start()
    return _machine.CARDS


def getDevice() -> int:
    return _machine.current()


def setDevice(card: int) -> None:
    _start()
    if not 0 <= card < _machine.CARDS:
        raise CUDARuntimeError("cudaErrorInvalidDevice: invalid device ordinal")
    _machine.set_current(card)


def memGetInfo() -> tuple[int, int]:
    card = _machine.current()
    _machine.contexts.add(card)
    return _machine.BYTES - _machine.taken[card] - _machine.cached[card], _machine.BYTES


def getDeviceProperties(card: int) -> dict[str, object]:
    _start()
    if not 0 <= card < _machine.CARDS:
        raise CUDARuntimeError("cudaErrorInvalidDevice: invalid device ordinal")
    numbers = {"major": 9, "minor": 0, "pciDomainID": 0, "pciBusID": 59 + card, "pciDeviceID": 0}
    return {"name": b"Stub GPU", "totalGlobalMem": _machine.BYTES, "uuid": bytes([17] * 15 + [card]), **numbers}
