"""`local_gpu`: the GPU of this process among those that a launcher started on the same machine.

Requirements of this module:

* Each launcher numbers the processes of a machine in its own variable. A launcher that was started inside a job of
  another one knows better, so the job's variable comes last.
* A job that gives each process its own GPU hides the others, and that GPU is ``gpu:0`` in each process.
* Two processes on one GPU by mistake would be slow, and run out of memory. So a number without a GPU is an error.
"""

from __future__ import annotations

from os import environ

from devshim._compiler_marks import constant_under_compile
from devshim.devices.device import Device
from devshim.errors import ArgumentError, DeviceNotFoundError
from devshim.errors.formatting import show
from devshim.registry import current
from devshim.runtime import queries

__all__ = ["VARIABLES", "local_gpu"]

VARIABLES = (
    "LOCAL_RANK",  # torchrun, accelerate, DeepSpeed
    "PADDLE_LOCAL_RANK",  # paddle.distributed.launch
    "FLAGS_selected_gpus",  # paddle.distributed.spawn
    "HOROVOD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",  # Open MPI
    "MV2_COMM_WORLD_LOCAL_RANK",  # MVAPICH2
    "MPI_LOCALRANKID",  # Intel MPI, MPICH
    "PALS_LOCAL_RANKID",  # Cray
    "JSM_NAMESPACE_LOCAL_RANK",  # IBM's jsrun
    "FLUX_TASK_LOCAL_ID",
    "SLURM_LOCALID",  # srun; it is also set in each process that another launcher starts in the job
)
"""The variables with the number of this process among those of its machine; the first one that is set applies."""


def local_gpu() -> Device:
    """Return the GPU of this process among the processes that a launcher started on this machine.

    Returns:
        ``gpu:N`` for the N-th process of the machine, as the launcher numbers them. ``gpu:0`` without a launcher, and
        if only one GPU is visible, as when a job gives each process its own. The CPU without a GPU.

    Raises:
        DeviceNotFoundError: Several GPUs are visible, but fewer than the process's number needs.
        ArgumentError: The launcher's variable is not a number.

    The number is the first of these variables that is set and not negative: ``LOCAL_RANK``, ``PADDLE_LOCAL_RANK``,
    ``FLAGS_selected_gpus``, ``HOROVOD_LOCAL_RANK``, ``OMPI_COMM_WORLD_LOCAL_RANK``, ``MV2_COMM_WORLD_LOCAL_RANK``,
    ``MPI_LOCALRANKID``, ``PALS_LOCAL_RANKID``, ``JSM_NAMESPACE_LOCAL_RANK``, ``FLUX_TASK_LOCAL_ID``, ``SLURM_LOCALID``.

    >>> import devshim as ds
    >>> ds.use("numpy")
    >>> ds.local_gpu()
    Device('cpu')
    """
    return queries.try_all_gpus()[_index()]


@constant_under_compile
def _index() -> int:
    """Return the number of the GPU of this process among all, which is 0 without GPUs."""
    backend = current.current()
    count = backend.count("gpu")
    name, rank = _rank()
    if count <= 1:
        rank = 0
    if rank >= count > 0:
        problem = f"{name} is {rank}, and this process sees {count} GPUs: gpu:0 to gpu:{count - 1}"
        hint = f"start at most {count} processes on this machine, or share GPUs with ds.gpu({rank} % {count})"
        raise DeviceNotFoundError(problem, hint)
    return rank


def _rank() -> tuple[str, int]:
    """Return the number of this process on its machine, and the variable that gives it; 0 without a launcher."""
    for name in VARIABLES:
        text = environ.get(name, "").strip()
        if not text or text == "-1":  # programs set LOCAL_RANK to -1 for "no launcher"
            continue
        if not (text.isascii() and text.isdecimal() and len(text) <= 5):
            several = " (a process with several GPUs chooses among ds.try_all_gpus())" if "," in text else ""
            msg = f"the environment variable {name} is {show(text)}, and it must be the number of a process, such as 0"
            raise ArgumentError(msg, f"unset {name}, or correct it{several}")
        return name, int(text)
    return "", 0
