"""Tests of `devshim.simulation.usage`: what `devshim smi` and NVML answer from."""

from __future__ import annotations

import pytest

from devshim.simulation import usage


def test_the_machine_numbers_gpus_by_cuda_visible_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEVSHIM_SIMULATE_GPUS", "3")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    assert [usage.number_of(index) for index in range(2)] == [2, 0]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert [usage.number_of(index) for index in range(3)] == [0, 1, 2]
