"""Which of JAX's CPU devices are the host, and which simulate GPUs, in this process and in the others of its job.

A program can ask for several CPU devices, by ``--xla_force_host_platform_device_count`` in ``XLA_FLAGS`` or by
``jax.config``. All of them are the host, and they are the first ones, so their numbers are those of a machine with real
GPUs. The simulated GPUs come after them.

In a job of several processes, each process tells the others how many of both it has, over JAX's own coordinator.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import jax
from jax._src import distributed, xla_bridge

from devshim.errors import SimulationError
from devshim_backends._jax.internals import clients

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["forget", "gpus_of_processes", "host_count", "meet", "ordinals", "simulated_gpus", "starting"]

_FLAG = re.compile(r"--xla_force_host_platform_device_count=([0-9]+)")
_SETTING = "jax_num_cpu_devices"
_KEY = "devshim/devices/{}"
_TIMEOUT = 60_000  # milliseconds: the start of JAX waits for all processes already
_hosts: int | None = None
_written: tuple[int, int] | None = None
"""The setting of JAX that devshim wrote, and the program's own that it replaced."""
_ordinals: list[int] = []
_processes: list[tuple[int, int]] = []
"""The number of host devices and of simulated GPUs of each process of the job; empty if there is one process."""


def host_count() -> int:
    """Return how many of JAX's CPU devices are the host. Starts JAX."""
    natives, hosts = clients.cpu_devices(), _hosts
    return len(natives) if hosts is None else hosts


def simulated_gpus(count: int | None = None) -> list[Any]:
    """Return JAX's devices for the first simulated GPUs of this process, or for all that it can have. Starts JAX."""
    natives, hosts = clients.cpu_devices(), _hosts
    return natives[len(natives) if hosts is None else hosts :][:count]


def gpus_of_processes() -> list[list[Any]]:
    """Return JAX's devices for the simulated GPUs of each process, as they were at the start; empty for one process."""
    meet()
    found: list[list[Any]] = []
    for index, (hosts, gpus) in enumerate(_processes):
        natives = [native for native in clients.devices_of_all_processes() if native.process_index == index]
        found.append(sorted(natives, key=clients.true_id)[hosts : hosts + gpus])
    return found


def meet() -> None:
    """Learn how many devices the other processes of the job have; waits until they have started.

    Raises:
        SimulationError: Another process has no simulated GPUs.
    """
    job, known = distributed.global_state, _processes
    if job.client is None or known:
        return
    found = []
    for index in range(job.num_processes):
        try:
            hosts, gpus = job.client.blocking_key_value_get(_KEY.format(index), _TIMEOUT).split()
        except RuntimeError as error:
            msg = f"process {index} of this job has no simulated GPUs, and process {job.process_id} has"
            raise SimulationError(msg, "start every process of the job with `devshim run`") from error
        found.append((int(hosts), int(gpus)))
    known[:] = found


def ordinals() -> list[int]:
    """Return the number that the driver gives to each simulated GPU of this process."""
    return list(_ordinals)


@contextmanager
def starting(gpus: Sequence[int], lasting: bool = False) -> Iterator[None]:
    """Let JAX start its CPU in the block, with devices for simulated GPUs after those that the program asked for.

    Args:
        gpus: The number that the driver gives to each GPU.
        lasting: True if JAX shall start with as many devices again when the program clears its backends.
    """
    global _hosts, _written
    own_setting = _own_setting()
    hosts, own = _requested_hosts(own_setting), xla_bridge.num_cpu_devices
    if lasting:
        jax.config.update(_SETTING, hosts + len(gpus))
        _written = (hosts + len(gpus), own_setting)
    xla_bridge.num_cpu_devices = SimpleNamespace(value=hosts + len(gpus))
    try:
        yield
    finally:
        xla_bridge.num_cpu_devices = own
    _hosts = hosts
    _ordinals[:] = gpus
    _processes.clear()
    job = distributed.global_state
    if job.client is not None:
        job.client.key_value_set(_KEY.format(job.process_id), f"{hosts} {len(gpus)}", allow_overwrite=True)


def forget() -> None:
    """Forget the devices, which JAX has dropped."""
    global _hosts
    _hosts = None
    _ordinals.clear()
    _processes.clear()


def _own_setting() -> int:
    """Return the program's setting of JAX, which is negative if it has none."""
    setting, written = int(jax.config.jax_num_cpu_devices), _written
    return written[1] if written is not None and setting == written[0] else setting


def _requested_hosts(setting: int) -> int:
    """Return the number of CPU devices that the program asked for; JAX prefers its own setting to the flag of XLA."""
    found = _FLAG.findall(os.environ.get("XLA_FLAGS", ""))
    return max(setting if setting >= 0 else int(found[-1]) if found else 1, 1)
