"""Tests of the variables that tell a process its rank."""

from __future__ import annotations

import pytest

import devshim as ds
from devshim.world.launchers import find_place, join_values, without_launchers
from devshim.world.ray_peers import RayPeers

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
    place = find_place(variables)
    assert (place.rank, place.size, place.local_rank, place.launcher) == (3, 4, 1, launcher)
    assert place.one_host is one_host
    assert len(place.hosts) == (4 if one_host else 0)


BY_HAND = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2", "localhost", "::1"])
def test_ranks_that_reach_rank_0_on_loopback_are_on_one_host(address: str) -> None:
    place = find_place({**BY_HAND, "MASTER_ADDR": address, "MASTER_PORT": "1"})
    assert (place.one_host, place.host_variable, len(place.hosts)) == (True, "", 2)
    assert not find_place({**TORCHRUN, "MASTER_ADDR": address}).one_host  # which counts its ranks


@pytest.mark.parametrize(
    ("variables", "setting"),
    [
        (BY_HAND, "LOCAL_WORLD_SIZE=2"),
        ({**BY_HAND, "MASTER_ADDR": "10.0.0.1"}, "LOCAL_WORLD_SIZE=2"),
        ({key: value for key, value in SRUN.items() if key != "SLURM_STEP_NUM_NODES"}, "SLURM_STEP_NUM_NODES=1"),
        (OPENMPI, "OMPI_COMM_WORLD_LOCAL_SIZE=4"),
        ({"PMI_RANK": "0", "PMI_SIZE": "3"}, "MPI_LOCALNRANKS=3"),
    ],
)
def test_the_variable_is_named_that_would_say_whether_there_is_one_host(
    variables: dict[str, str], setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = find_place(variables)
    assert (place.one_host, place.host_variable) == (False, setting)
    name, _, value = setting.partition("=")
    assert find_place({**variables, name: value}).one_host
    monkeypatch.delenv("DEVSHIM_RAY_ADDRESS", raising=False)
    with pytest.raises(ds.UnsupportedError) as caught:
        RayPeers(place)
    said = f"the variables of rank {place.rank} do not say whether all {place.size} ranks are on one host"
    assert caught.value.problem == said
    assert str(caught.value.hint).startswith(f"set {setting} in each rank if they are; otherwise start a cluster")


@pytest.mark.parametrize("variables", [TORCHRUN, SRUN])
def test_ranks_of_several_hosts_need_a_cluster(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEVSHIM_RAY_ADDRESS", raising=False)
    with pytest.raises(ds.UnsupportedError, match="the ranks are on several hosts, and these share no Ray cluster"):
        RayPeers(find_place(variables))


def test_the_address_of_rank_0_is_read() -> None:
    assert find_place(TORCHRUN).engine_address == "a:29500"


def test_variables_of_other_launchers_do_not_reach_ranks() -> None:
    foreign = {"TF_CONFIG": "{}", "TORCHELASTIC_RUN_ID": "x", "PADDLE_TRAINER_ID": "7", "SLURM_NTASKS": "8"}
    own = {"PATH": "/bin", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "0"}
    assert without_launchers({**foreign, **own, **SRUN, **OPENMPI, **MPICH, "LOCAL_WORLD_SIZE": "9"}) == own


@pytest.mark.parametrize("hosts", [2, 1000])
def test_the_hosts_of_many_ranks_fit_into_a_variable(hosts: int) -> None:
    names = [f"worker-{host}.cluster.example.org" for host in range(hosts) for _ in range(8)]
    text = join_values(names)
    assert len(text) < 64 * 1024
    size = {"RANK": "0", "WORLD_SIZE": str(8 * hosts), "LOCAL_RANK": "0"}
    assert list(find_place({**size, "DEVSHIM_HOSTS": text}).hosts) == names


def test_a_process_alone_is_a_job() -> None:
    assert (find_place({}).rank, find_place({}).size) == (0, 1)


def test_a_batch_script_of_slurm_is_no_rank() -> None:
    assert find_place({"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "1"}).size == 1


def test_devshim_names_the_hosts() -> None:
    place = find_place(
        {**TORCHRUN, "DEVSHIM_JOB": "j", "DEVSHIM_HOSTS": "a,a,b,b", "DEVSHIM_TIMEOUT": "5", "DEVSHIM_ATTEMPT": "2"}
    )
    assert place.launcher == "devshim"
    assert place.name_rank(3) == "rank 3 on b"
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
        find_place({**TORCHRUN, **change})
