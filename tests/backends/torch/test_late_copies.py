"""Tests of `simulate` with ``async_copies="late"``: a copy to the host arrives when the program waits for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest
import torch

import devshim as ds
from devshim.testing.base import in_thread

GPU = "sim:1"


@pytest.fixture(autouse=True)
def _late() -> Iterator[None]:
    ds.use("torch")
    with ds.simulate(2, async_copies="late"):
        yield


def started() -> tuple[torch.Tensor, torch.Tensor]:
    """Return a tensor on the GPU, and its copy to the host, which is under way."""
    x = torch.ones(3, device=GPU)
    return x, x.to("cpu", non_blocking=True)


def event() -> torch.Event:
    recorded = torch.Event(GPU)
    recorded.record()
    return recorded


WAITS: dict[str, Callable[[torch.Tensor], object]] = {
    "the accelerator": lambda x: torch.accelerator.synchronize(1),
    "the GPU's module": lambda x: torch.get_device_module("sim").synchronize(1),
    "devshim": lambda x: ds.synchronize("gpu:1"),
    "devshim, all GPUs": lambda x: ds.synchronize(),
    "the stream": lambda x: torch.accelerator.current_stream(1).synchronize(),
    "an event": lambda x: event().synchronize(),
    "a question to an event": lambda x: event().query(),
    "item": lambda x: x.sum().item(),
    "a condition": lambda x: bool((x > 0).all()),
    "cpu": lambda x: x.cpu(),
    "numpy": lambda x: x.cpu().numpy(),
    "tolist": lambda x: x.tolist(),
    "repr": lambda x: repr(x),
    "copy_": lambda x: torch.zeros(3).copy_(x),
    "place": lambda x: ds.place(x, "cpu"),
    "place without blocking": lambda x: ds.place(x, "cpu", non_blocking=True),
    "to_numpy": lambda x: ds.to_numpy(x),
    "another thread": lambda x: in_thread(lambda: ds.synchronize("gpu:1")),
}


@pytest.mark.parametrize("wait", WAITS)
def test_a_copy_arrives_with_the_wait(wait: str) -> None:
    x, host = started()
    assert host.isnan().all()
    WAITS[wait](x)
    assert host.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "act",
    [
        lambda x: x + x,
        lambda x: x.to("sim:0"),
        lambda x: x.to("sim:0").sum().item(),
        lambda x: ds.synchronize("gpu:0"),
        lambda x: x.to("cpu", non_blocking=True),
        lambda x: torch.accelerator.current_stream(0).synchronize(),
        lambda x: event().wait(),
        lambda x: ds.device_of(x),
    ],
)
def test_nothing_else_delivers_it(act: Callable[[torch.Tensor], object]) -> None:
    """Neither work on the GPU, nor a wait for another GPU."""
    x, host = started()
    act(x)
    assert host.isnan().all()


def test_an_event_waits_for_what_was_started_before() -> None:
    x, first = started()
    recorded = event()
    second = x.to("cpu", non_blocking=True)
    recorded.synchronize()
    assert first.tolist() == [1, 1, 1]
    assert second.isnan().all()


def test_a_loop_that_asks_ends() -> None:
    _, host = started()
    recorded = event()
    assert [recorded.query(), recorded.query()] == [False, True]
    assert host.tolist() == [1, 1, 1]
    stream = torch.accelerator.current_stream(1)
    _, host = started()
    assert [stream.query(), stream.query()] == [False, True]
    assert host.tolist() == [1, 1, 1]


def test_a_copy_has_the_values_of_its_start() -> None:
    """The GPU works in order, so what the program does to the tensor afterwards comes after the copy."""
    x, host = started()
    x.mul_(5)
    del x
    ds.synchronize("gpu:1")
    assert host.tolist() == [1, 1, 1]


def test_a_target_keeps_its_old_values() -> None:
    x = torch.arange(6.0, device=GPU).reshape(2, 3).t()
    host = torch.full((3, 2), 7, dtype=torch.int64)
    assert host.copy_(x, non_blocking=True) is host
    assert host.unique().tolist() == [7]
    ds.synchronize("gpu:1")
    assert host.tolist() == [[0, 3], [1, 4], [2, 5]]


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.int64, torch.bfloat16, torch.float64, torch.complex64]
)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_every_dtype_and_shape(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    x = torch.ones(shape, dtype=dtype, device=GPU)
    host = x.to("cpu", non_blocking=True)
    assert host.shape == shape
    assert host.numel() == 0 or not bool((host == 1).any())
    ds.synchronize("gpu:1")
    assert bool((host == 1).all())


def test_gradients_pass_and_the_arrival_is_no_change_in_place() -> None:
    x = torch.ones(3, device=GPU, requires_grad=True)
    host = (x * 2).to("cpu", non_blocking=True)
    result = (host**2).sum()  # saves `host` for its gradient
    ds.synchronize("gpu:1")
    result.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [8, 8, 8]
    assert math.isnan(result.item())


def test_a_whole_model_arrives() -> None:
    net = torch.nn.Linear(2, 2).to(GPU)
    expected = net.weight.tolist()
    net.to("cpu", non_blocking=True)
    assert net.weight.isnan().all()
    ds.synchronize("gpu:1")
    assert net.weight.tolist() == expected


def test_a_copy_to_the_gpu_and_one_that_blocks_are_complete() -> None:
    x = torch.ones(3).to(GPU, non_blocking=True)
    assert x.to("cpu").tolist() == [1, 1, 1]
    assert x.to("cpu", torch.float64).tolist() == [1, 1, 1]


def test_leaving_the_block_delivers_everything() -> None:
    with ds.simulate(2, async_copies="late"):
        _, host = started()
        with ds.simulate(2):
            assert host.tolist() == [1, 1, 1]
            assert started()[1].tolist() == [1, 1, 1]
        _, host = started()
        assert host.isnan().all()
    assert host.tolist() == [1, 1, 1]
