"""The listing of ``nvidia-smi -q``, for simulated GPUs: a line for each field, under the title of its section."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from devshim.cli._smi_fields import mib
from devshim.simulation import usage
from devshim.simulation.usage import Gpu

__all__ = ["SECTIONS", "listing", "unknown_section"]

_WIDTH = 42
"""The column of the colon before each value."""
_ABSENT = "N/A"
"""The value of a property that a simulated GPU lacks."""

Lines = Iterator[tuple[int, str, str | None]]
"""The depth, the name and the value of each line; the title of a section has no value."""


def _memory(gpu: Gpu) -> Lines:
    used, total = mib(gpu.used), mib(gpu.total)
    yield 1, "FB Memory Usage", None
    for name, value in {"Total": total, "Reserved": 0, "Used": used, "Free": total - used}.items():
        yield 2, name, f"{value} MiB"


def _utilization(gpu: Gpu) -> Lines:
    yield 1, "Utilization", None
    for name in ("GPU", "Memory"):
        yield 2, name, "0 %"


def _temperature(gpu: Gpu) -> Lines:
    yield 1, "Temperature", None
    yield 2, "GPU Current Temp", _ABSENT


def _power(gpu: Gpu) -> Lines:
    yield 1, "GPU Power Readings", None
    for name in ("Average Power Draw", "Current Power Limit"):
        yield 2, name, _ABSENT


def _clock(gpu: Gpu) -> Lines:
    yield 1, "Clocks", None
    for name in ("Graphics", "SM", "Memory", "Video"):
        yield 2, name, _ABSENT


def _compute(gpu: Gpu) -> Lines:
    yield 1, "Compute Mode", "Default"


def _pids(gpu: Gpu) -> Lines:
    yield 1, "Processes", None if gpu.processes else "None"
    for process, nbytes in gpu.processes:
        yield 2, "Process ID", str(process.pid)
        yield 3, "Type", "C"
        yield 3, "Name", process.program
        yield 3, "Used GPU Memory", f"{mib(nbytes)} MiB"


SECTIONS: Mapping[str, Callable[[Gpu], Lines]] = {
    "MEMORY": _memory,
    "COMPUTE": _compute,
    "UTILIZATION": _utilization,
    "TEMPERATURE": _temperature,
    "POWER": _power,
    "CLOCK": _clock,
    "PIDS": _pids,
}
"""Name in ``--display`` -> the lines of a GPU, in the order in which they are printed."""


def _identity(gpu: Gpu) -> Lines:
    yield 1, "Product Name", usage.NAME
    yield 1, "Product Brand", _ABSENT
    yield 1, "Compute Capability", ".".join(map(str, usage.CAPABILITY))
    yield 1, "Persistence Mode", _ABSENT
    yield 1, "GPU UUID", usage.uuid(gpu.index)
    yield 1, "Minor Number", str(gpu.index)
    yield 1, "Fan Speed", _ABSENT
    yield 1, "Performance State", _ABSENT


def unknown_section(display: str) -> str | None:
    """Return the first name in ``--display`` that is not a section, or None."""
    return next((each for each in _names(display) if each not in SECTIONS), None)


def listing(gpus: Sequence[Gpu], count: int, display: str | None = None) -> str:
    """Return the listing of some GPUs of a machine with ``count``, with all sections or those that are named."""
    head = {
        "Timestamp": time.strftime("%a %b %d %H:%M:%S %Y"),
        "Driver Version": usage.DRIVER,
        "CUDA Version": ".".join(map(str, usage.CUDA)),
    }
    lines = ["", "=============DEVSHIM-SMI LOG=============", ""]
    lines += [*(_line(0, name, value) for name, value in head.items()), "", _line(0, "Attached GPUs", str(count))]
    chosen = SECTIONS if display is None else _names(display)
    for gpu in gpus:
        lines.append(f"GPU {gpu.index} (simulated)")
        parts = (
            [_identity, *SECTIONS.values()]
            if display is None
            else [SECTIONS[each] for each in SECTIONS if each in chosen]
        )
        lines += [_line(*each) for part in parts for each in part(gpu)]
        lines.append("")
    return "\n".join(lines)


def _names(display: str) -> list[str]:
    return [each.strip().upper() for each in display.split(",")]


def _line(depth: int, name: str, value: str | None) -> str:
    indented = f"{'    ' * depth}{name}"
    return indented if value is None else f"{indented:<{_WIDTH}}: {value}"
