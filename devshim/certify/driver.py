"""Queries to the CUDA driver without starting it: the GPUs on which this process has a context, and the current one."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from uuid import UUID

__all__ = ["contexts", "current", "uuid"]

_NAMES = ("libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so")


def contexts() -> list[int] | None:
    """Return the GPUs on which this process has a context; None if no library has started the driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    count = ctypes.c_int()
    if driver.cuDeviceGetCount(ctypes.byref(count)):
        return None  # CUDA_ERROR_NOT_INITIALIZED
    return [index for index in range(count.value) if _has_context(driver, index)]


def _has_context(driver: ctypes.CDLL, index: int) -> bool:
    card, flags, active = ctypes.c_int(), ctypes.c_uint(), ctypes.c_int()
    driver.cuDeviceGet(ctypes.byref(card), index)
    driver.cuDevicePrimaryCtxGetState(card, ctypes.byref(flags), ctypes.byref(active))
    return bool(active.value)


def uuid(index: int) -> str | None:
    """Return the UUID of a GPU by its CUDA number in this process; None if no library has started the driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    card, found = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    ask = driver.cuDeviceGetUuid_v2 if hasattr(driver, "cuDeviceGetUuid_v2") else driver.cuDeviceGetUuid  # before 11.4
    if driver.cuDeviceGet(ctypes.byref(card), index) or ask(found, card):
        return None
    return f"GPU-{UUID(bytes=bytes(found))}"


def current() -> int | None:
    """Return this thread's current GPU of the CUDA runtime; None if no runtime library is found."""
    for name in _NAMES:
        with suppress(OSError):
            runtime, index = ctypes.CDLL(name), ctypes.c_int()
            return None if runtime.cudaGetDevice(ctypes.byref(index)) else index.value
    return None
