"""Tests of the variables by which a process knows its rank."""

from __future__ import annotations

import pytest

import devshim as ds
from devshim.world.launchers import found_place

TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "a",
    "MASTER_PORT": "29500",
}
SRUN = {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": "1", "SLURM_STEP_NUM_NODES": "2"}
OPENMPI = {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
MPICH = {"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4"}


@pytest.mark.parametrize(
    ("variables", "launcher", "one_host"),
    [(TORCHRUN, "torchrun", False), (SRUN, "srun", False), (OPENMPI, "mpirun", False), (MPICH, "mpirun", True)],
)
def test_each_launcher_is_read(variables: dict[str, str], launcher: str, one_host: bool) -> None:
    place = found_place(variables)
    assert (place.rank, place.size, place.local_rank, place.launcher) == (3, 4, 1, launcher)
    assert place.one_host is one_host
    assert len(place.hosts) == (4 if one_host else 0)


def test_the_address_of_rank_0_is_read() -> None:
    assert found_place(TORCHRUN).engine_address == "a:29500"


def test_a_process_alone_is_a_job() -> None:
    assert (found_place({}).rank, found_place({}).size) == (0, 1)


def test_a_batch_script_of_slurm_is_no_rank() -> None:
    assert found_place({"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "1"}).size == 1


def test_devshim_names_the_hosts() -> None:
    place = found_place(
        {**TORCHRUN, "DEVSHIM_JOB": "j", "DEVSHIM_HOSTS": "a,a,b,b", "DEVSHIM_TIMEOUT": "5", "DEVSHIM_ATTEMPT": "2"}
    )
    assert place.launcher == "devshim"
    assert place.named(3) == "rank 3 on b"
    assert (place.timeout, place.attempt, place.one_host) == (5.0, 2, False)


@pytest.mark.parametrize(
    "change",
    [
        {"RANK": "x"},
        {"RANK": "4"},
        {"WORLD_SIZE": "-1"},
        {"LOCAL_RANK": "9"},
        {"DEVSHIM_HOSTS": "a,b"},
        {"DEVSHIM_TIMEOUT": "soon"},
        {"DEVSHIM_TIMEOUT": "-1"},
    ],
)
def test_contradictions_are_refused(change: dict[str, str]) -> None:
    with pytest.raises(ds.ArgumentError):
        found_place({**TORCHRUN, **change})
