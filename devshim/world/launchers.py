"""The variables that give a process its rank: devshim, torchrun, srun and mpirun."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from devshim.contract.ranks import Place
from devshim.errors import ArgumentError

__all__ = ["find_place", "is_wrapper", "join_values", "rank_of", "without_launchers"]


@dataclass(frozen=True)
class _Launcher:
    """The names of one launcher's variables.

    Attributes:
        name: The launcher.
        rank: The variable of the rank; the launcher is recognized by it and by ``size``.
        size: The variable of the number of ranks.
        local_rank: The variable of the rank on its host.
        local_size: The variable of the number of ranks on this host; empty if there is none.
        nodes: The variable of the number of hosts; empty if there is none.
    """

    name: str
    rank: str
    size: str
    local_rank: str
    local_size: str = ""
    nodes: str = ""


_LAUNCHERS = (
    _Launcher("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    # A batch script also has SLURM_PROCID and SLURM_NTASKS, but is not a rank: only `srun` starts a step.
    _Launcher("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nodes="SLURM_STEP_NUM_NODES"),
    _Launcher(
        "mpirun",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    _Launcher("mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)


_LOOPBACK = ("localhost", "::1")
"""The addresses, beside 127.*, at which only processes of one host reach rank 0."""
_LONG = 8192
"""The most characters of a list that are written out; Linux limits a variable to 128 KiB."""
_FOREIGN = (
    *("SLURM_STEP_", "OMPI_COMM_WORLD_", "PMI_", "PMIX_", "MPI_LOCAL", "PALS_"),
    *("TORCHELASTIC_", "PADDLE_TRAINER", "JAX_COORDINATOR"),
)
"""The prefixes of variables that give a process its rank."""
_FOREIGN_NAMES = (
    *("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS", "TF_CONFIG", "LOCAL_WORLD_SIZE"),
    *("GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE"),
)


_OF_JOB = ("TORCHELASTIC_RUN_ID", "SLURM_STEP_ID", "OMPI_COMM_WORLD_RANK", "PMIX_NAMESPACE", "PMI_RANK", "DEVSHIM_JOB")
"""Variables that a launcher sets in its ranks, so that a launcher that is itself a rank differs in one of them."""


def without_launchers(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the rank variables of other launchers, which frameworks would use.

    `devshim.launch` may be called in a batch job of Slurm, or in a rank of torchrun.
    """
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith(_FOREIGN) and name not in _FOREIGN_NAMES
    }


def find_place(environment: Mapping[str, str]) -> Place:
    """Return the place of a process; the only one of its job if no launcher started it.

    Raises:
        ArgumentError: A variable is not a number, or two of them contradict each other.
    """
    for each in _LAUNCHERS:
        if each.rank in environment and each.size in environment:
            return _place(each, environment)
    return Place(hosts=(socket.gethostname(),))


def rank_of(environment: Mapping[str, str]) -> int | None:
    """Return the rank that an environment names, without a check of the rest; None if there is none."""
    for each in _LAUNCHERS:
        if each.rank in environment and each.size in environment and environment[each.rank].isdecimal():
            return int(environment[each.rank])
    return None


def is_wrapper(parent: Mapping[str, str], rank: Mapping[str, str]) -> bool:
    """Return True if a rank's parent is a wrapper of this rank, such as a shell script, and not its launcher."""
    number = rank_of(parent)
    return number is not None and number == rank_of(rank) and all(parent.get(x) == rank.get(x) for x in _OF_JOB)


def _place(launcher: _Launcher, environment: Mapping[str, str]) -> Place:
    rank, size = _number(environment, launcher.rank), _number(environment, launcher.size)
    local_rank = _number(environment, launcher.local_rank) if launcher.local_rank in environment else rank
    if rank >= size or local_rank > rank:
        values = f"{launcher.rank}={rank}, {launcher.size}={size}, {launcher.local_rank}={local_rank}"
        msg = f"the variables of the launcher contradict each other: {values}"
        raise ArgumentError(msg, "a rank is less than the number of ranks; unset them to run a single process")
    hosts = _expand_list(environment, "DEVSHIM_HOSTS", size)
    addresses = _expand_list(environment, "DEVSHIM_ADDRESSES", size)
    one_host: bool | None = len(set(hosts)) == 1
    if not hosts:
        one_host = _is_one_host(launcher, environment, size)
        hosts = (socket.gethostname(),) * size if one_host else ()
    address = environment.get("MASTER_ADDR", "")
    return Place(
        rank=rank,
        size=size,
        local_rank=local_rank,
        hosts=hosts,
        addresses=addresses,
        engine_address=f"{address}:{environment.get('MASTER_PORT', '')}" if address else "",
        timeout=_seconds(environment, "DEVSHIM_TIMEOUT", 60.0),
        attempt=_number({"DEVSHIM_ATTEMPT": "0", **environment}, "DEVSHIM_ATTEMPT"),
        launcher="devshim" if "DEVSHIM_JOB" in environment else launcher.name,
        one_host=bool(one_host),
        host_variable="" if one_host is not None else _setting(launcher, size),
    )


def _is_one_host(launcher: _Launcher, environment: Mapping[str, str], size: int) -> bool | None:
    """Return True if all ranks are on one host; None if the variables do not say.

    All ranks must get the same answer, so only variables count that are the same in all of them, or that count ranks:
    the last rank of a host would know from its local rank that no other host has ranks, and the others would not.
    """
    if size == 1:
        return True
    if environment.get(launcher.local_size):
        return environment[launcher.local_size] == str(size)
    if environment.get(launcher.nodes):
        return environment[launcher.nodes] == "1"
    address = environment.get("MASTER_ADDR", "")
    return True if address in _LOOPBACK or address.startswith("127.") else None


def _setting(launcher: _Launcher, size: int) -> str:
    """Return the variable that says that all ranks are on one host, with its value."""
    return f"{launcher.nodes}=1" if launcher.nodes else f"{launcher.local_size}={size}"


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment[name]
    if not text.isdecimal():
        msg = f"the variable {name} is {text!r}, and must be a number"
        raise ArgumentError(msg, f"unset {name} to run a single process")
    return int(text)


def _seconds(environment: Mapping[str, str], name: str, default: float) -> float:
    text = environment.get(name, "")
    try:
        seconds = float(text) if text else default
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        msg = f"the variable {name} is {text!r}, and must be a time in seconds"
        raise ArgumentError(msg, f"{name}=60 waits at most a minute")
    return seconds


def join_values(items: Sequence[str]) -> str:
    """Return items as the value of a variable; in a long list, equal neighbours become ``name*8``."""
    text = ",".join(items)
    if len(text) > _LONG:
        text = ",".join(f"{name}*{len(list(each))}" for name, each in groupby(items))
    return text


def _expand_list(environment: Mapping[str, str], name: str, size: int) -> tuple[str, ...]:
    text = environment.get(name, "")
    items = tuple(each for item in text.split(",") for each in _expand_count(item)) if text else ()
    if items and len(items) != size:
        msg = f"the variable {name} has {len(items)} entries for {size} ranks"
        raise ArgumentError(msg, "it lists one for each rank, with commas")
    return items


def _expand_count(item: str) -> list[str]:
    name, star, count = item.rpartition("*")
    return [name] * int(count) if star and count.isdecimal() and len(count) < 6 else [item]
