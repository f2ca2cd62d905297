"""Tests of `local_gpu`: the variables of every launcher, and the GPUs that this process sees."""

from __future__ import annotations

import pytest

import devshim as ds
from devshim.runtime.local_gpu import VARIABLES


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("name", VARIABLES)
def test_each_launchers_variable(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ds.simulate(4)
    assert ds.local_gpu() is ds.gpu(0)
    monkeypatch.setenv(name, "3")
    assert ds.local_gpu() is ds.gpu(3)


def test_the_inner_launcher_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """torchrun in a job of SLURM: one task for the machine, so SLURM numbers every process 0."""
    ds.simulate(2)
    monkeypatch.setenv("SLURM_LOCALID", "0")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert ds.local_gpu() is ds.gpu(1)
    monkeypatch.setenv("LOCAL_RANK", "-1")
    monkeypatch.setenv("SLURM_LOCALID", " 1 ")
    assert ds.local_gpu() is ds.gpu(1)
    monkeypatch.setenv("SLURM_LOCALID", "")
    assert ds.local_gpu() is ds.gpu(0)


def test_the_only_visible_gpu_is_this_processs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    ds.simulate(1)
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert ds.local_gpu() is ds.gpu(0)


def test_the_cpu_without_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert ds.local_gpu() is ds.cpu()


def test_too_few_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    ds.simulate(2)
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_RANK", "2")
    with pytest.raises(ds.DeviceNotFoundError, match="LOCAL_RANK is 2, and this process sees 2 GPUs") as caught:
        ds.local_gpu()
    assert "ds.gpu(2 % 2)" in caught.value.hint


@pytest.mark.parametrize("text", ["one", "0,1", "-2", "1.0", "१", "9" * 30])
def test_a_number_is_expected(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ds.simulate(2)
    monkeypatch.setenv("FLAGS_selected_gpus", text)
    with pytest.raises(ds.ArgumentError, match="FLAGS_selected_gpus is") as caught:
        ds.local_gpu()
    assert ("try_all_gpus" in caught.value.hint) is ("," in text)


def test_the_docstring_names_every_variable() -> None:
    assert all(f"``{name}``" in str(ds.local_gpu.__doc__) for name in VARIABLES)
