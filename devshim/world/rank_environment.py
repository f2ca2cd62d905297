"""The environment variables by which the launcher tells each rank its place."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from devshim.registry.simulation_request import EMPTY_HIDES
from devshim.world.launchers import join_values

if TYPE_CHECKING:
    from devshim.world.cluster import Host
    from devshim.world.job import Job

__all__ = ["make_variables", "shared"]


def shared(job: Job, name: str, attempt: int, hosts: Sequence[str], addresses: Sequence[tuple[str, int]]) -> Any:
    """Return the variables that all ranks of a job have.

    Args:
        job: The job.
        name: Its name in Ray.
        attempt: How many times it was started again.
        hosts: The name of the host of each rank.
        addresses: The address of the host of each rank, and a free port there.
    """
    import ray

    variables = {
        "WORLD_SIZE": str(len(hosts)),
        "MASTER_ADDR": addresses[0][0],
        "MASTER_PORT": str(addresses[0][1]),
        "DEVSHIM_JOB": name,
        "DEVSHIM_HOSTS": join_values(hosts),
        "DEVSHIM_ADDRESSES": join_values([address for address, _ in addresses]),
        "DEVSHIM_TIMEOUT": f"{job.timeout:g}",
        "DEVSHIM_ATTEMPT": str(attempt),
        "DEVSHIM_RAY": str(ray.get_runtime_context().gcs_address),
    }
    ours = {key: value for key, value in os.environ.items() if key.startswith(("RAY_AUTH", "RAY_ENABLE"))}
    theirs = {key: value for key, value in job.environment.items() if key.startswith("DEVSHIM_")}
    return {**theirs, **variables, **ours}


def make_variables(job: Job, host: Host, rank: int, local: int) -> tuple[dict[str, str], str]:
    """Return the variables of one rank, and its devices for people.

    Args:
        job: The job.
        host: The host of the rank.
        rank: Its number.
        local: Its number among the ranks of the host.
    """
    variables = {"RANK": str(rank), "LOCAL_RANK": str(local)}
    simulated = job.simulate if job.simulate is not None else job.cards_per_rank
    if job.simulate is not None or host.simulated:
        variables.update({"DEVSHIM_SIMULATE_GPUS": str(simulated), "CUDA_VISIBLE_DEVICES": "", EMPTY_HIDES: ""})
        return variables, f"{simulated} simulated GPU{'' if simulated == 1 else 's'}" if simulated else "cpu"
    if not host.cards:
        return variables, "cpu"
    each = job.cards_per_rank
    visible = ",".join(str(local * each + i) for i in range(each))
    return {**variables, "CUDA_VISIBLE_DEVICES": visible}, f"GPU {visible}" if each else "cpu"
