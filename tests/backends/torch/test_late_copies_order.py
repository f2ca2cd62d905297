"""Tests of late copies that use one memory after another, and of copies whose tensor gets other data."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import devshim as ds

GPU, OTHER = "cuda:1", "cuda:0"


@pytest.fixture(autouse=True)
def _late() -> Iterator[None]:
    ds.use("torch")
    with ds.simulate(2, native_names=True, async_copies="late"):
        yield


def pinned(value: float) -> torch.Tensor:
    return torch.full((3,), float(value)).pin_memory()


def unload(host: torch.Tensor, value: float, device: str = GPU) -> None:
    host.copy_(torch.full((3,), float(value), device=device), non_blocking=True)


def load(host: torch.Tensor, device: str = GPU) -> torch.Tensor:
    return host.to(device, non_blocking=True)


def test_one_stream_copies_out_and_in_again() -> None:
    host = pinned(0)
    unload(host, 2)
    assert (load(host) + 0).tolist() == [2, 2, 2]


@pytest.mark.parametrize("arrives_first", [0, 1, 2])
def test_one_stream_reads_memory_before_it_writes_it_again(arrives_first: int) -> None:
    host, copies = pinned(1), []
    for value in (2, 3, 4):
        copies.append(load(host))
        unload(host, value)
    assert (copies[arrives_first] + 0).tolist() == [arrives_first + 1] * 3
    assert [copied.tolist() for copied in copies] == [[1] * 3, [2] * 3, [3] * 3]
    torch.cuda.synchronize(GPU)
    assert host.tolist() == [4, 4, 4]


def test_one_stream_writes_memory_of_the_gpu_twice() -> None:
    target, first, second = torch.zeros(3, device=GPU), pinned(0), pinned(0)
    unload(first, 2)
    target.copy_(first, non_blocking=True)
    unload(second, 3)
    target[:2].copy_(second[:2], non_blocking=True)
    assert (target + 0).tolist() == [3, 3, 2]


def test_parts_of_one_memory() -> None:
    host = torch.zeros(2, 3).pin_memory()
    unload(host[0], 2)
    unload(host[1], 3)
    assert (load(host) + 0).tolist() == [[2] * 3, [3] * 3]


@pytest.mark.parametrize("wait", ["stream", "event", "nothing"])
def test_another_stream_must_wait_for_what_it_reads(wait: str) -> None:
    host, side = pinned(0), torch.cuda.Stream(GPU)
    unload(host, 2)
    here = torch.cuda.current_stream(GPU)
    if wait == "stream":
        side.wait_stream(here)
    elif wait == "event":
        side.wait_event(here.record_event())
    with torch.cuda.stream(side):
        copied = load(host) + 0
    assert copied.tolist() == ([0] * 3 if wait == "nothing" else [2] * 3)


def test_a_wait_that_comes_too_late() -> None:
    host, side = pinned(0), torch.cuda.Stream(GPU)
    unload(host, 2)
    with torch.cuda.stream(side):
        copied = load(host)
    torch.cuda.current_stream(GPU).wait_stream(side)
    assert (copied + 0).tolist() == [0, 0, 0]


@pytest.mark.parametrize("waits", [True, False])
def test_from_a_gpu_over_the_host_to_another(waits: bool) -> None:
    host = pinned(0)
    unload(host, 2, OTHER)
    done = torch.cuda.current_stream(OTHER).record_event()
    if waits:
        torch.cuda.current_stream(GPU).wait_event(done)
    assert (load(host) + 0).tolist() == ([2, 2, 2] if waits else [0, 0, 0])


def test_a_copy_back_to_the_gpu_does_not_wait_for_the_host() -> None:
    """Only copies of the same memory arrive with it."""
    host, other = pinned(0), pinned(0)
    unload(other, 2)
    unload(host, 3)
    result = load(host) + 0
    assert other.tolist() == [0, 0, 0]
    assert result.tolist() == [3, 3, 3]


def test_saved_tensors_in_pinned_memory() -> None:
    x = torch.full((3,), 2.0, device=GPU, requires_grad=True)
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        y = (x * x.exp()).sum()
    y.backward()
    assert x.grad is not None
    assert torch.allclose(x.grad.cpu(), 3 * torch.full((3,), 2.0).exp())


# ---------------------------------------------------------------------- other data
def test_a_model_is_loaded_from_pinned_memory() -> None:
    net = torch.nn.Linear(3, 2)
    for parameter in net.parameters():
        parameter.data = torch.ones_like(parameter).pin_memory()
    net.to(GPU, non_blocking=True)
    assert net(torch.ones(1, 3, device=GPU)).tolist() == [[4, 4]]
    torch.cuda.synchronize(GPU)
    assert net.weight.tolist() == [[1, 1, 1], [1, 1, 1]]


def test_a_copy_belongs_to_the_memory_and_not_to_the_tensor() -> None:
    source, target = pinned(1), torch.zeros(3)
    copied, memory = load(source), target.detach()
    unload(target, 2)
    parameter = torch.nn.Parameter(torch.zeros(3))
    parameter.data = copied
    copied.data = torch.zeros(3)
    source.data = target.data = torch.full((3,), 5.0)
    torch.cuda.synchronize(GPU)
    assert (parameter.tolist(), memory.tolist()) == ([1, 1, 1], [2, 2, 2])
    assert (source.tolist(), target.tolist()) == ([5, 5, 5], [5, 5, 5])
