"""Tests of `devshim.simulation.driver_numbers`."""

from __future__ import annotations

import pytest

from devshim.simulation.driver_numbers import driver_number


def test_the_machine_numbers_gpus_by_cuda_visible_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEVSHIM_SIMULATE_GPUS", "3")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    assert [driver_number(index) for index in range(2)] == [2, 0]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert [driver_number(index) for index in range(3)] == [0, 1, 2]
