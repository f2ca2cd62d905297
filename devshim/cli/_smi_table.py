"""The table of ``nvidia-smi``, for simulated GPUs: the same lines and columns."""

from __future__ import annotations

import time
from collections.abc import Sequence

import devshim as ds
from devshim.cli._smi_fields import mib
from devshim.simulation import usage
from devshim.simulation.usage import Gpu

__all__ = ["table"]

_LINE = "+-----------------------------------------------------------------------------------------+"
_COLUMNS = "+-----------------------------------------+------------------------+----------------------+"
_TITLES = """\
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|"""
_PROCESSES = """\
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|"""
_NONE = "|  No running processes found                                                             |"


def table(gpus: Sequence[Gpu]) -> str:
    """Return the table of the GPUs and of the processes that use them."""
    versions = f"Driver Version: {usage.DRIVER:<14} CUDA Version: {'.'.join(map(str, usage.CUDA)):<5}"
    head = f"| {'DEVSHIM-SMI ' + ds.__version__ + ' (simulated)':<33} {versions}"
    parts = [time.strftime("%a %b %d %H:%M:%S %Y"), _LINE, f"{head:<{len(_LINE) - 1}}|", _COLUMNS, _TITLES]
    for gpu in gpus:
        memory = f"{mib(gpu.used)}MiB / {mib(gpu.total):6}MiB"
        parts += [
            f"|{gpu.index:4}  {usage.NAME:<28} N/A   | {'N/A':>22} | {'N/A':>20} |",
            f"| N/A   N/A   N/A            N/A /  N/A   | {memory:>22} | {'0%':>7}      Default |",
            f"|{'':41}|{'':24}| {'N/A':>20} |",
            _COLUMNS,
        ]
    return "\n".join([*parts, "", _LINE, _PROCESSES, *(_rows(gpus) or [_NONE]), _LINE])


def _rows(gpus: Sequence[Gpu]) -> list[str]:
    return [
        f"|{gpu.index:5}   N/A  N/A{process.pid:17}      C   {_short(process.program):<34}{mib(nbytes):8}MiB |"
        for gpu in gpus
        for process, nbytes in gpu.processes
    ]


def _short(program: str) -> str:
    program = " ".join(program.split())
    return program if len(program) <= 34 else f"{program[:31]}..."
