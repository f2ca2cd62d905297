"""Tests of NVML for simulated GPUs: ``pynvml`` while native names are on, and as it was afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pynvml
import pytest

import devshim as ds
from devshim.devices import nvml as real_nvml


@pytest.fixture
def gpus() -> Iterator[Any]:
    """Simulate three GPUs under native names."""
    ds.use("numpy")
    try:
        with ds.simulate(3, "1GiB"):
            pass
        import devshim.simulation.nvml as simulated

        simulated.set_simulated(True)
        with ds.simulate(3, "1GiB"):
            simulated.set_simulated(True)
            yield simulated
    finally:
        ds.use(None)


def test_pynvml_counts_and_names_them(gpus: Any) -> None:
    pynvml.nvmlInit()
    assert pynvml.nvmlDeviceGetCount() == 3
    handle = pynvml.nvmlDeviceGetHandleByIndex(2)
    assert pynvml.nvmlDeviceGetName(handle) == "Simulated GPU"
    assert pynvml.nvmlDeviceGetIndex(handle) == 2
    uuid = pynvml.nvmlDeviceGetUUID(handle)
    assert pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByUUID(uuid)) == 2
    assert pynvml.nvmlDeviceGetCudaComputeCapability(handle) == (8, 0)
    assert pynvml.nvmlSystemGetCudaDriverVersion() == 13000
    assert pynvml.nvmlSystemGetDriverVersion()
    rates = pynvml.nvmlDeviceGetUtilizationRates(handle)
    assert (rates.gpu, rates.memory) == (0, 0)
    pynvml.nvmlShutdown()


def test_pynvml_counts_memory_and_processes(gpus: Any) -> None:
    import os

    x = ds.ones((1 << 18,), dtype="float32", device="gpu:1")
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(1)
    for version in (None, pynvml.nvmlMemory_v2):
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=version)
        assert (memory.total, memory.used, memory.free) == (1 << 30, 1 << 20, (1 << 30) - (1 << 20))
    (process,) = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    assert (process.pid, process.usedGpuMemory) == (os.getpid(), 1 << 20)
    assert pynvml.nvmlDeviceGetComputeRunningProcesses(pynvml.nvmlDeviceGetHandleByIndex(0)) == []
    assert pynvml.nvmlDeviceGetGraphicsRunningProcesses(handle) == []
    del x
    assert pynvml.nvmlDeviceGetMemoryInfo(handle).used == 0


def test_hidden_gpus_keep_their_numbers(gpus: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    x = ds.ones((1 << 18,), dtype="float32", device="gpu:0")
    used = [each.used for each in gpus.all_gpus()]
    assert used == [0, 0, 1 << 20]
    del x


def test_what_a_simulated_gpu_lacks_is_not_supported(gpus: Any) -> None:
    with pytest.raises(pynvml.NVMLError, match="Uninitialized"):
        pynvml.nvmlDeviceGetCount()
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    for call in (pynvml.nvmlDeviceGetPowerUsage, pynvml.nvmlDeviceGetFanSpeed, pynvml.nvmlDeviceGetPciInfo):
        with pytest.raises(pynvml.NVMLError_NotSupported):
            call(handle)
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlDeviceGetHandleByIndex(3)
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetHandleByUUID("GPU-1")


def test_devshim_itself_does_not_take_them_for_real_ones(gpus: Any) -> None:
    pynvml.nvmlInit()
    assert real_nvml.cards() == []
    assert "simulated GPUs" in real_nvml.why_no_cards()


def test_afterwards_pynvml_is_what_it_was() -> None:
    import devshim.simulation.nvml as simulated

    before = dict(vars(pynvml))
    simulated.set_simulated(True)
    try:
        pynvml.nvmlInit()
        pynvml.nvmlDeviceGetCount()
    finally:
        simulated.set_simulated(False)
    assert vars(pynvml) == before
