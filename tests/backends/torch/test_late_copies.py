"""Tests of `simulate` with ``async_copies="late"``: a copy arrives when something waits for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
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
    "a number of another GPU to which it was copied": lambda x: x.to("sim:0").sum().item(),
    "a copy to the GPU that blocks": lambda x: torch.ones(3).to(x.device),
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
        lambda x: ds.synchronize("gpu:0"),
        lambda x: x.to("cpu", non_blocking=True),
        lambda x: torch.accelerator.current_stream(0).synchronize(),
        lambda x: event().wait(),
        lambda x: ds.device_of(x),
    ],
)
def test_nothing_else_delivers_a_copy(act: Callable[[torch.Tensor], object]) -> None:
    """Neither work on the GPU nor a wait for another GPU."""
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


# ---------------------------------------------------------------------- to the GPU
def pinned(value: float = 1.0) -> torch.Tensor:
    return torch.full((3,), value).pin_memory()


STARTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "to": lambda x: x.to(GPU, non_blocking=True),
    "to another dtype": lambda x: x.to(GPU, torch.float64, non_blocking=True),
    "copy_": lambda x: torch.zeros(3, device=GPU).copy_(x, non_blocking=True),
    "copy_ to a part": lambda x: torch.zeros(2, 3, device=GPU)[1].copy_(x, non_blocking=True),
}


@pytest.mark.parametrize("start", STARTS)
def test_pinned_memory_that_is_overwritten_too_early(start: str) -> None:
    """Also through NumPy, which PyTorch does not see."""
    source = pinned()
    x = STARTS[start](source)
    source.numpy()[:] = 5
    assert x.tolist() == [5, 5, 5]
    source = pinned()
    x = STARTS[start](source)
    ds.synchronize("gpu:1")
    source.fill_(5)
    assert x.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "start",
    [
        lambda x: x.to(GPU),
        lambda x: x.clone().to(GPU, non_blocking=True),
        lambda x: x.expand(2, 3).to(GPU, non_blocking=True)[0],
        lambda x: ds.place(x, "gpu:1"),
        lambda x: torch.zeros(3, device=GPU).copy_(x),
    ],
    ids=["blocking", "not pinned", "not contiguous", "place", "a blocking copy_"],
)
def test_a_copy_to_the_gpu_that_is_complete_on_return(start: Callable[[torch.Tensor], torch.Tensor]) -> None:
    source = pinned()
    x = start(source)
    source.fill_(5)
    assert x.tolist() == [1, 1, 1]


def test_work_on_the_gpu_waits_for_its_own_copies() -> None:
    """Work comes after the copies that were started before, in the same stream."""
    source = pinned().requires_grad_()
    x = source.to(GPU, non_blocking=True)
    view = x[1:]
    y = view * 2
    with torch.no_grad():
        source.fill_(5)
    assert y.tolist() == [2, 2]
    y.sum().backward()
    assert source.grad is not None
    assert source.grad.tolist() == [0, 2, 2]
    z = torch.ones(3, device="sim:0").to(GPU).add_(1)
    assert z.tolist() == [2, 2, 2]


def test_copies_that_are_dropped_take_no_memory() -> None:
    """A loop that only loads batches needs the memory of one."""
    with ds.simulate(2, memory="3MiB", async_copies="late"):
        before = ds.memory("gpu:1").used  # other tests of this process may hold some bytes
        batch = torch.ones(1 << 18).pin_memory()
        for _ in range(5):
            x = batch.to(GPU, non_blocking=True)
            del x
        assert ds.memory("gpu:1").used == before
        view = batch.to(GPU, non_blocking=True).reshape(2, 1 << 17)
        assert view.sum().item() == 1 << 18


def test_a_prefetched_loader_is_unchanged() -> None:
    loader = torch.utils.data.DataLoader(torch.arange(8.0), batch_size=2, pin_memory=True)
    found = [batch.to(GPU, non_blocking=True) for batch in loader]
    assert torch.cat(found).tolist() == list(range(8))
    with ds.simulate(2, async_copies="late"):
        rows = [np.full((2,), i, np.float32) for i in range(3)]
        assert [x.tolist() for x in ds.prefetch(rows, "gpu:1")] == [[0, 0], [1, 1], [2, 2]]


# ---------------------------------------------------------------------- streams
@pytest.fixture
def native() -> Iterator[None]:
    with ds.simulate(2, native_names=True, async_copies="late"):
        yield


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("source", ["pinned memory", "another GPU"])
def test_another_stream_must_wait(source: str) -> None:
    side = torch.cuda.Stream("cuda:1")

    def loaded() -> torch.Tensor:
        x = pinned() if source == "pinned memory" else torch.ones(3, device="cuda:0")
        with torch.cuda.stream(side):
            return x.to("cuda:1", non_blocking=True)

    x = loaded()
    assert x.isnan().all().item()
    x = loaded()
    torch.cuda.current_stream("cuda:1").wait_stream(side)
    assert (x + 1).tolist() == [2, 2, 2]
    x = loaded()
    done = side.record_event()
    later = loaded()
    torch.cuda.current_stream("cuda:1").wait_event(done)
    assert (x + 1).tolist() == [2, 2, 2]
    assert later.isnan().all().item()
    x = loaded()
    done = torch.cuda.Event()
    done.record(side)
    third = torch.cuda.Stream("cuda:1")
    done.wait(third)
    with torch.cuda.stream(third):
        assert x.tolist() == [1, 1, 1]
    for wait in (side.synchronize, done.synchronize, lambda: torch.cuda.synchronize("cuda:1")):
        x = loaded()
        done.record(side)
        wait()
        assert x.tolist() == [1, 1, 1]


@pytest.mark.usefixtures("native")
def test_a_stream_is_waited_for_alone() -> None:
    x = torch.ones(3, device="cuda:1")
    side = torch.cuda.Stream("cuda:1")
    with torch.cuda.stream(side):
        host = x.to("cpu", non_blocking=True)
    torch.cuda.current_stream("cuda:1").synchronize()
    x.sum().item()
    assert host.isnan().all()
    torch.cuda.current_stream("cuda:1").wait_stream(side)
    assert host.isnan().all()
    x.sum().item()
    assert host.tolist() == [1, 1, 1]


@pytest.mark.usefixtures("native")
def test_a_pipeline_that_waits_is_unchanged() -> None:
    """Two streams, a pinned buffer, and an event, as in a loader that prefetches."""
    buffer, loading, copied = torch.empty(3).pin_memory(), torch.cuda.Stream("cuda:1"), torch.cuda.Event()
    found = []
    for i in range(4):
        copied.synchronize()
        buffer.fill_(i)
        with torch.cuda.stream(loading):
            x = buffer.to("cuda:1", non_blocking=True)
            copied.record(loading)
        torch.cuda.current_stream("cuda:1").wait_event(copied)
        x.record_stream(torch.cuda.current_stream("cuda:1"))
        found.append((x * 2).sum())
    assert torch.stack(found).tolist() == [0, 6, 12, 18]


def test_leaving_the_block_delivers_everything() -> None:
    with ds.simulate(2, async_copies="late"):
        _, host = started()
        with ds.simulate(2):
            assert host.tolist() == [1, 1, 1]
            assert started()[1].tolist() == [1, 1, 1]
        _, host = started()
        assert host.isnan().all()
    assert host.tolist() == [1, 1, 1]


@pytest.mark.usefixtures("native")
def test_a_stream_of_the_accelerator_is_a_stream_of_its_own() -> None:
    side, buffer = torch.Stream(device="cuda:1"), torch.full((3,), 5.0).pin_memory()
    assert side != torch.Stream(device="cuda:1")
    assert side.stream_id
    assert side.device_type == torch.cuda.Stream().device_type == 1
    with side:
        assert torch.cuda.current_stream().stream_id == torch.accelerator.current_stream().stream_id
        assert torch.accelerator.current_stream() == side
        x = buffer.to("cuda:1", non_blocking=True)
    assert torch.accelerator.current_stream(1).stream_id == 0
    assert torch.isnan(x).all()  # no wait for `side`
    torch.cuda.current_stream("cuda:1").wait_stream(side)
    assert x.tolist() == [5.0] * 3
    torch.accelerator.set_stream(side)
    assert torch.accelerator.current_stream(1) == side
    torch.cuda.set_stream(torch.cuda.default_stream(1))
