"""The fields of ``--query-gpu`` and ``--query-compute-apps``, and their values for simulated GPUs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from devshim.simulation import usage
from devshim.simulation.usage import Gpu, Process

__all__ = ["gpu_header", "is_gpu_field", "is_process_field", "mib", "of_gpu", "of_process", "process_header"]

ABSENT = "[N/A]"
"""The value of a property that a simulated GPU lacks, as NVIDIA's tool prints it."""
_MIB, _PERCENT = "MiB", "%"
_ALIASES = {
    "gpu_name": "name",
    "gpu_uuid": "uuid",
    "gpu_bus_id": "pci.bus_id",
    "gpu_serial": "serial",
    "clocks.gr": "clocks.current.graphics",
    "clocks.sm": "clocks.current.sm",
    "clocks.mem": "clocks.current.memory",
}
"""Another name of a GPU's field -> its name in the header."""
_OF_GPU: Mapping[str, tuple[str, Callable[[Gpu, int], str]]] = {
    "timestamp": ("", lambda gpu, count: time.strftime("%Y/%m/%d %H:%M:%S.000")),
    "driver_version": ("", lambda gpu, count: usage.DRIVER),
    "count": ("", lambda gpu, count: str(count)),
    "name": ("", lambda gpu, count: usage.NAME),
    "uuid": ("", lambda gpu, count: usage.uuid(gpu.index)),
    "index": ("", lambda gpu, count: str(gpu.index)),
    "memory.total": (_MIB, lambda gpu, count: str(mib(gpu.total))),
    "memory.reserved": (_MIB, lambda gpu, count: "0"),
    "memory.used": (_MIB, lambda gpu, count: str(mib(gpu.used))),
    "memory.free": (_MIB, lambda gpu, count: str(mib(gpu.total) - mib(gpu.used))),
    "utilization.gpu": (_PERCENT, lambda gpu, count: "0"),
    "utilization.memory": (_PERCENT, lambda gpu, count: "0"),
    "compute_mode": ("", lambda gpu, count: "Default"),
    "compute_cap": ("", lambda gpu, count: ".".join(map(str, usage.CAPABILITY))),
}
"""Field of a GPU -> its unit, and its value for a GPU among ``count``."""
_UNITS = {
    "temperature.gpu": "",
    "temperature.memory": "",
    "fan.speed": "%",
    "power.draw": "W",
    "power.draw.average": "W",
    "power.draw.instant": "W",
    "power.limit": "W",
    "enforced.power.limit": "W",
    "power.default_limit": "W",
    "power.min_limit": "W",
    "power.max_limit": "W",
}
"""Field that simulated GPUs do not have -> its unit."""
_FAMILIES = (
    *("pci.", "pcie.", "power.", "clocks.", "temperature.", "ecc.", "retired_pages.", "remapped_rows.", "fan."),
    *("encoder.", "accounting.", "mig.", "gom.", "inforom.", "driver_model.", "clocks_throttle_reasons."),
    *("clocks_event_reasons.", "utilization.", "enforced.", "display_", "persistence_mode", "pstate", "serial"),
    *("vbios_version", "addressing_mode", "fabric.", "gsp.", "c2c.", "protected_memory.", "confidential_compute."),
)
"""The beginnings of the names of fields that NVIDIA's tool has and a simulated GPU lacks."""
_OF_PROCESS = {
    **{each: each for each in ("timestamp", "gpu_name", "gpu_bus_id", "gpu_serial", "gpu_uuid", "pid")},
    **dict.fromkeys(("name", "process_name"), "process_name"),
    **dict.fromkeys(("used_memory", "used_gpu_memory"), "used_gpu_memory"),
}
"""Field of a process -> its name in the header."""


def mib(nbytes: int) -> int:
    """Return bytes in MiB, rounded up, so that a small tensor is seen."""
    return -(-nbytes >> 20)


def is_gpu_field(name: str) -> bool:
    """Return True for a field of ``--query-gpu``."""
    name = _ALIASES.get(name, name)
    return name in _OF_GPU or name.startswith(_FAMILIES)


def is_process_field(name: str) -> bool:
    """Return True for a field of ``--query-compute-apps``."""
    return name in _OF_PROCESS


def gpu_header(name: str, units: bool) -> str:
    """Return the title of a column of GPUs."""
    name = _ALIASES.get(name, name)
    unit = _unit(name)
    return f"{name} [{unit}]" if unit and units else name


def process_header(name: str, units: bool) -> str:
    """Return the title of a column of processes."""
    name = _OF_PROCESS[name]
    return f"{name} [{_MIB}]" if name == "used_gpu_memory" and units else name


def _unit(name: str) -> str:
    if name in _OF_GPU:
        return _OF_GPU[name][0]
    return "MHz" if name.startswith("clocks.") else _UNITS.get(name, "")


def of_gpu(gpu: Gpu, count: int, names: Sequence[str], units: bool) -> list[str]:
    """Return the values of the fields of a GPU."""
    return [_value(gpu, count, _ALIASES.get(name, name), units) for name in names]


def _value(gpu: Gpu, count: int, name: str, units: bool) -> str:
    if name not in _OF_GPU:
        return ABSENT
    unit, read = _OF_GPU[name]
    return f"{read(gpu, count)} {unit}" if unit and units else read(gpu, count)


def of_process(gpu: Gpu, process: Process, nbytes: int, names: Sequence[str], units: bool) -> list[str]:
    """Return the values of the fields of a process on a GPU."""
    known = {
        "pid": str(process.pid),
        "process_name": process.program.split(" ")[0],
        "used_gpu_memory": f"{mib(nbytes)} {_MIB}" if units else str(mib(nbytes)),
    }
    titles = [_OF_PROCESS[name] for name in names]
    return [known[each] if each in known else _value(gpu, 0, _ALIASES.get(each, each), units) for each in titles]
