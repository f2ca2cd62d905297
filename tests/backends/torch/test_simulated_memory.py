"""Tests of the memory of simulated GPUs in PyTorch: counted to the byte, with a peak and a limit, and freed."""

from __future__ import annotations

import gc

import pytest
import torch
from simulated_torch import GPU

import devshim as ds

nn = torch.nn

MIB = 1 << 20


@pytest.fixture(scope="module", autouse=True)
def clean():
    ds.use("torch")
    gc.collect()
    gc.freeze()  # a collection then visits only what the tests made
    yield
    gc.unfreeze()
    ds.use(None)


@pytest.fixture
def card():
    with ds.simulate(gpus=2, memory=4 * MIB):
        yield ds.gpu(1)
        gc.collect()
        assert ds.memory("gpu:0").used == ds.memory("gpu:1").used == 0


def used():
    return ds.memory("gpu:1").used


def test_devshim_and_torch_count_the_same_bytes(card):
    x = torch.zeros(MIB, dtype=torch.uint8, device=GPU)
    sim, acc = torch.sim, torch.accelerator
    assert used() == MIB
    assert sim.memory_allocated(1) == sim.memory_allocated(GPU) == acc.memory_allocated(1) == MIB
    assert sim.memory_allocated() == acc.memory_allocated() == 0
    assert acc.memory_reserved(1) >= MIB
    assert sim.mem_get_info(1) == acc.get_memory_info(1) == (3 * MIB, 4 * MIB)
    assert sim.get_device_properties(1).total_memory == 4 * MIB
    assert acc.memory_stats(1)["allocated_bytes.all.current"] == MIB
    del x
    assert acc.max_memory_allocated(1) == MIB
    assert acc.max_memory_reserved(1) >= MIB
    assert acc.memory_stats(1)["allocated_bytes.all.peak"] == MIB
    assert ds.memory(card).peak == MIB
    acc.reset_peak_memory_stats(1)
    assert acc.max_memory_allocated(1) == 0
    acc.reset_accumulated_memory_stats(1)
    acc.empty_cache()
    ds.empty_cache(card)
    assert used() == 0


@pytest.mark.parametrize(
    ("make", "taken"),
    [
        (lambda: torch.zeros(1, device=GPU), 512),
        (lambda: torch.zeros(128, device=GPU), 512),
        (lambda: torch.zeros(129, device=GPU), 1024),
        (lambda: torch.zeros(0, device=GPU), 0),
        (lambda: torch.ones(256).to(GPU), 1024),
        (lambda: torch.ones(256, dtype=torch.float64).to(GPU, torch.float16), 512),
        (lambda: torch.zeros(256, device=GPU).expand(4, 256), 1024),
        (lambda: torch.zeros(256, device=GPU)[:2].view(2, 1), 1024),
        (lambda: torch.arange(256.0, device=GPU).reshape(16, 16).t(), 1024),
        (lambda: nn.Linear(16, 16, device=GPU), 1024 + 512),
        (lambda: nn.Linear(16, 16).to(GPU), 1024 + 512),
        (lambda: torch.zeros(4, device=GPU).resize_(512), 2048),
        (lambda: torch.ones(256, device=GPU).untyped_storage(), 1024),
        (lambda: torch.zeros(256, device=GPU).detach().requires_grad_(), 1024),
        (lambda: torch.zeros(256, device=GPU).clone(), 1024),
        (lambda: torch.empty(0, device=GPU).set_(torch.zeros(256, device=GPU)), 1024),
    ],
)
def test_bytes_of_a_tensor(card, make, taken):
    kept = make()
    assert used() == taken
    del kept
    assert used() == 0


def test_temporary_tensors_are_freed(card):
    """Temporaries, graphs and gradients are freed with their last reference, without a collection."""
    gc.disable()
    try:
        x = torch.ones(256, device=GPU, requires_grad=True)
        y = ((x * 2).relu() @ x.exp()).sum()
        y.backward()
        assert used() == 2 * 1024 + 512
        del y
        x.grad = None
        assert used() == 1024
        for _ in range(3):
            (x + 1).mul_(2)
        assert used() == 1024
        x = None
        assert used() == 0
    finally:
        gc.enable()


def test_the_peak_counts_bytes_that_were_in_use_together(card):
    x = torch.zeros(MIB, dtype=torch.uint8, device=GPU)
    for _ in range(4):
        x = x + 1
    assert ds.memory(card).peak == 2 * MIB
    torch.accelerator.reset_peak_memory_stats(1)
    assert ds.memory(card).peak == MIB


@pytest.mark.parametrize(
    "full", [ds.OutOfMemoryError, torch.OutOfMemoryError, torch.cuda.OutOfMemoryError, RuntimeError]
)
@pytest.mark.parametrize(
    "ask",
    [
        lambda: torch.empty(5 * MIB, dtype=torch.uint8, device=GPU),
        lambda: torch.ones(5 * MIB, dtype=torch.uint8).to(GPU),
        lambda: torch.ones(1, device=GPU).expand(2 * MIB).clone(),
        lambda: nn.Linear(1500, 1500).to(GPU),
        lambda: torch.ones(1500, 1, device=GPU) @ torch.ones(1, 1500, device=GPU),
        lambda: torch.zeros(4, device=GPU).resize_(2 * MIB),
        lambda: torch.rand(2 * MIB, device=GPU),
        lambda: [torch.zeros(MIB // 8, device=GPU) for _ in range(20)],
    ],
)
def test_a_full_gpu_refuses(card, ask, full):
    with pytest.raises(full):
        ask()
    gc.collect()
    assert used() == 0
    assert torch.ones(3, device=GPU).sum().item() == 3


def test_the_error_of_a_full_gpu(card):
    kept = torch.zeros(MIB, dtype=torch.uint8, device=GPU)
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.zeros(70 * MIB, dtype=torch.uint8, device=GPU)
    reported = str(caught.value)
    assert "gpu:1" in reported
    assert f"{70 * MIB:,}" in reported
    assert f"{3 * MIB:,}" in reported
    assert torch.zeros(70 * MIB, dtype=torch.uint8).device.type == "cpu"  # the host continues
    del kept


def test_a_module_that_does_not_fit_stays_on_the_host(card):
    model = nn.Sequential(nn.Linear(500, 500), nn.Linear(1500, 1500))
    with pytest.raises(torch.OutOfMemoryError):
        model.to(GPU)
    model.cpu()
    assert {each.device.type for each in model.parameters()} == {"cpu"}
    assert model[0](torch.ones(1, 500)).shape == (1, 500)


def test_smaller_batches(card):
    def step(n):
        return torch.zeros(n, MIB, dtype=torch.uint8, device=GPU).shape[0]

    assert ds.shrink_batch(step, 10) == (2, 2)


def test_a_training_step_frees_its_memory(card):
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(2 * 36, 4)).to(GPU)
    opt = torch.optim.Adam(model.parameters())
    for _ in range(3):
        opt.zero_grad()
        nn.functional.cross_entropy(
            model(torch.ones(2, 1, 8, 8, device=GPU)), torch.zeros(2, dtype=torch.int64, device=GPU)
        ).backward()
        opt.step()
        taken = used()
    opt.zero_grad()
    opt.step()
    assert used() < taken
    del model, opt


TOO_MUCH = {
    "empty": lambda d: torch.empty(1 << 44, device=d),
    "ones": lambda d: torch.ones(1 << 44, device=d),
    "arange": lambda d: torch.arange(1 << 44, device=d),
    "an operator": lambda d: torch.ones(1, device=d).expand(1 << 44) + 1,
    "a copy": lambda d: torch.ones(1).expand(1 << 44).to(d),
    "resize_": lambda d: torch.ones(1, device=d).resize_(1 << 44),
}


@pytest.mark.parametrize("native_names", [False, True])
@pytest.mark.parametrize("call", TOO_MUCH)
def test_more_than_the_hosts_memory_does_not_fit_on_a_gpu_without_a_limit(call, native_names):
    with ds.simulate(2, native_names=native_names):
        device = ds.gpu(1).native()
        with pytest.raises(torch.OutOfMemoryError) as caught:
            TOO_MUCH[call](device)
        assert "gpu:1 is out of memory" in str(caught.value)
        assert ("CUDA out of memory" in str(caught.value)) == native_names
        del caught
        assert ds.memory("gpu:1").used == 0
        with pytest.raises(RuntimeError, match="DefaultCPUAllocator"):
            torch.ones(1, device=device).expand(1 << 44).cpu()
