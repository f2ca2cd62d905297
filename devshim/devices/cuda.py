"""The number of GPUs that CUDA would show this process, found without starting CUDA here.

NVML, the driver's query library, is light. But it lists whole cards, while CUDA shows one slice of one card in MIG
mode. NVML is also missing in some containers, under WSL and on Jetson. Where NVML does not know, CUDA is asked in a
separate process: once CUDA has started in this process, it is too late to hide cards.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from typing import Any

from devshim.devices import nvml

__all__ = ["count", "has_context", "why_not_started"]

_PROGRAM = """
import ctypes
driver, found = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(found)) == 0:
    print(found.value)
"""


def count() -> int:
    """Return the number of cards that CUDA will show, including slices of cards (MIG)."""
    value = os.environ.get("CUDA_VISIBLE_DEVICES")
    named = None if value is None else nvml.parse_visible_devices(value)
    if named == []:
        return 0
    slices = [name for name in named or () if name.startswith("MIG-")]
    if not slices and (cards := nvml.cards()):
        seen = cards if value is None else nvml.select_shown(value, cards)
        if not any(card.in_slices for card in cards):  # in MIG mode an index in the variable may not be the card's
            return len(seen)
        slices = ["the first"] if seen else []
    cuda_count = _ask(value, os.environ.get("CUDA_DEVICE_ORDER"))
    return len(slices) if cuda_count is None else cuda_count


@cache
def _ask(value: str | None, order: str | None) -> int | None:
    """Return CUDA's own count under these values of its variables, or None if CUDA cannot be asked."""
    try:
        ctypes.CDLL("libcuda.so.1")  # loading it starts nothing
    except OSError:
        return None
    import subprocess

    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _PROGRAM], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return int(done.stdout) if done.stdout.strip().isdecimal() else None


def has_context(index: int) -> bool:
    """Return False if this process has certainly not used a card, which then has no context.

    Most calls that name this card create a context on it, which takes about half a GB.
    """
    if not hasattr(os, "RTLD_NOLOAD"):
        return True
    card, flags, active = ctypes.c_int(), ctypes.c_uint(), ctypes.c_int()
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        if driver.cuDeviceGet(ctypes.byref(card), index):
            return False  # the driver is not started
        if driver.cuDevicePrimaryCtxGetState(card, ctypes.byref(flags), ctypes.byref(active)):
            return True
    except OSError:
        return False  # the driver is not loaded
    return bool(active.value)


def why_not_started() -> str | None:
    """Return why CUDA's driver does not start, as a sentence fragment; None if it starts or is missing.

    The question starts CUDA in this process: call this only after a framework has tried to start it.
    """
    try:
        driver: Any = ctypes.CDLL("libcuda.so.1")
        status = int(driver.cuInit(0))
        if not status:
            return None
        name, text = ctypes.c_char_p(), ctypes.c_char_p()
        driver.cuGetErrorName(status, ctypes.byref(name))
        driver.cuGetErrorString(status, ctypes.byref(text))
    except (OSError, AttributeError):
        return None
    reason = ", ".join(found.value.decode() for found in (name, text) if found.value) or f"error {status}"
    return f"the NVIDIA driver's CUDA does not start ({reason})"
