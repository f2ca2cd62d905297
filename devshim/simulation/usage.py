"""The memory that processes use on simulated GPUs, as `devshim smi`, ``nvidia-smi`` and NVML show it.

Requirements of this module:

* GPUs are numbered as NVML numbers them: ``CUDA_VISIBLE_DEVICES`` hides none of them, and changes no number.
* A question starts no framework and loads no adapter.
* Processes that `devshim run` started with one command share one set of GPUs: a program and its workers.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from devshim.devices import host
from devshim.registry import registry, simulation_request
from devshim.simulation.driver_numbers import driver_number, uuid
from devshim.simulation.properties import CAPABILITY

__all__ = [
    "CAPABILITY",
    "CUDA",
    "DRIVER",
    "NAME",
    "Gpu",
    "Process",
    "gpus_of",
    "of_environment",
    "of_this_process",
    "uuid",
]

NAME = "Simulated GPU"
DRIVER = "580.0"
"""The version of the driver that programs ask for; it fits that of CUDA."""
CUDA = (13, 0)


@dataclass(frozen=True)
class Process:
    """A process that may use simulated GPUs.

    Attributes:
        pid: Its number.
        program: Its command line.
        gpus: The number of GPUs of its machine.
        total: The bytes of each GPU.
        used: The bytes that it uses on each GPU.
    """

    pid: int
    program: str
    gpus: int
    total: int
    used: tuple[int, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the attributes by name."""
        return asdict(self)


@dataclass(frozen=True)
class Gpu:
    """A simulated GPU with the processes on it.

    Attributes:
        index: Its number.
        total: Its memory in bytes.
        processes: The processes that use memory on it, with the bytes.
    """

    index: int
    total: int
    processes: tuple[tuple[Process, int], ...]

    @property
    def used(self) -> int:
        """The bytes in use."""
        return sum(nbytes for _, nbytes in self.processes)

    @property
    def free(self) -> int:
        """The bytes that are not in use."""
        return max(self.total - self.used, 0)


def of_this_process() -> Process:
    """Return what this process uses."""
    gpus, total = _machine()
    used = [0] * gpus
    for backend in registry.loaded_backends():
        simulated = backend.simulated_devices
        if simulated is None or not backend.simulated:
            continue
        simulated.count_freed()
        for index in range(backend.simulated):
            number = driver_number(index)
            if number < gpus:
                used[number] += simulated[index].info().used or 0
    return Process(os.getpid(), _program(), gpus, total, tuple(used))


def of_environment() -> Process:
    """Return the GPUs that are requested, as a process that uses nothing."""
    gpus, total = _machine()
    return Process(os.getpid(), _program(), gpus, total, (0,) * gpus)


def _machine() -> tuple[int, int]:
    """Return the number of GPUs that are requested, and the bytes of each: without a limit, those of the host."""
    gpus, limit = simulation_request.full_request()[:2]
    return gpus, limit if limit is not None else host.memory().total or 0


def _program() -> str:
    first, *rest = getattr(sys, "orig_argv", None) or [sys.executable, *sys.argv]
    return " ".join([os.path.basename(first), *rest])


def gpus_of(processes: Iterable[Process]) -> list[Gpu]:
    """Return the GPUs that some processes share."""
    processes = list(processes)
    found: list[Gpu] = []
    for index in range(max((each.gpus for each in processes), default=0)):
        total = max(each.total for each in processes if index < each.gpus)
        users = [(each, each.used[index]) for each in processes if index < len(each.used) and each.used[index]]
        found.append(Gpu(index, total, tuple(users)))
    return found
