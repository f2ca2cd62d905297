"""The CPU and its memory, described without any framework."""

from __future__ import annotations

import os
import platform
from functools import lru_cache

from devshim.devices.device import CPU, Device
from devshim.devices.info import DeviceInfo, MemoryInfo

__all__ = ["describe", "describe_simulated", "memory", "processor_name"]


def describe(backend: str) -> DeviceInfo:
    """Return the host's `DeviceInfo` in the name of a backend."""
    return DeviceInfo(device=CPU, name=processor_name(), backend=backend, total_memory=memory().total)


def describe_simulated(backend: str, device: Device, memory: int | None) -> DeviceInfo:
    """Return the `DeviceInfo` of a simulated GPU; its name says that it is simulated."""
    return DeviceInfo(
        device=device,
        name=f"simulated GPU (computes on {processor_name()})",
        backend=backend,
        total_memory=memory,
        simulated=True,
    )


@lru_cache(maxsize=1)
def processor_name() -> str:
    """Return the CPU's model name, or the machine's architecture if the system does not report a model."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass  # not Linux: use the platform module
    return platform.processor() or platform.machine()


def memory() -> MemoryInfo:
    """Return the host's memory in bytes (``sysconf``, ``/proc``); a field that the system does not report is None."""
    try:
        page = os.sysconf("SC_PAGE_SIZE")
        total = page * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return MemoryInfo()
    free = _available()
    used, peak = _resident()
    return MemoryInfo(total=total, used=used, free=free, peak=peak)


def _available() -> int | None:
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def _resident() -> tuple[int | None, int | None]:
    """Return this process's resident set and its peak, in bytes (``VmRSS`` and ``VmHWM`` of proc(5))."""
    found: dict[str, int] = {}
    try:
        with open("/proc/self/status", encoding="utf-8") as lines:
            for line in lines:
                if line.startswith(("VmRSS:", "VmHWM:")):
                    found[line[:5]] = int(line.split()[1]) * 1024
    except OSError:
        pass
    return found.get("VmRSS"), found.get("VmHWM")
