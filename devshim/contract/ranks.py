"""The contract for several processes: the place of a process among the ranks of a job."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Place"]


@dataclass(frozen=True)
class Place:
    """The rank of a process, and facts about its job, from the environment.

    Attributes:
        rank: The number of this process, from 0.
        size: How many processes the job has.
        local_rank: The number of this process among those of its host.
        hosts: The name of each rank's host; empty if the launcher does not say.
        addresses: The address of each rank's host; empty if the launcher does not say.
        engine_address: ``"address:port"`` where rank 0 may listen; empty if the launcher does not say.
        timeout: How long a collective may wait for a rank, in seconds.
        attempt: How often the job was started again.
        launcher: What started the process: ``"devshim"``, ``"torchrun"``, ``"srun"``, ``"mpirun"``, or ``""``.
        one_host: True if all ranks are known to be on one host.
        host_variable: If that is unknown, the variable that would say so, such as ``LOCAL_WORLD_SIZE=2``; or empty.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    hosts: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    engine_address: str = ""
    timeout: float = 60.0
    attempt: int = 0
    launcher: str = ""
    one_host: bool = True
    host_variable: str = ""

    def host_of(self, rank: int) -> str:
        """Return the name of a rank's host; empty if the launcher does not say."""
        return self.hosts[rank] if self.hosts else ""

    def name_rank(self, rank: int) -> str:
        """Return the name of a rank in messages: ``rank 2 on host1``."""
        return f"rank {rank} on {self.hosts[rank]}" if self.hosts else f"rank {rank}"

    def list_ranks(self, ranks: list[int]) -> str:
        """Return the names of ranks in messages, in their order."""
        return ", ".join(map(self.name_rank, sorted(ranks)))
