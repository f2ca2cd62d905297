"""Tests of what is current in a backward pass on simulated GPUs in PyTorch: the GPU and the stream of the node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from simulated_torch import GPU

import devshim as ds

nn = torch.nn


@pytest.fixture(autouse=True)
def gpus() -> Iterator[None]:
    ds.use("torch")
    with ds.simulate(gpus=3):
        yield
    ds.use(None)


def current() -> tuple[int, int]:
    """Return the index of the current GPU, and the number of its current stream."""
    index = torch.accelerator.current_device_index()
    return index, torch.accelerator.current_stream(index).stream_id


class Doubled(torch.autograd.Function):
    """Doubles, and in the backward pass by a tensor on the current GPU."""

    seen: list[tuple[int, int]]

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        Doubled.seen.append(current())
        return gradient * torch.full((1,), 2.0, device="sim")


@pytest.fixture(autouse=True)
def seen() -> list[tuple[int, int]]:
    Doubled.seen = []
    return Doubled.seen


def new_leaf(device: str = GPU) -> torch.Tensor:
    return torch.ones(3, device=device, requires_grad=True)


def test_a_function_computes_on_the_gpu_of_its_gradients(seen: list[tuple[int, int]]) -> None:
    x = new_leaf()
    (Doubled.apply(Doubled.apply(x).to("sim:2")).to("sim:0") * 3).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [12, 12, 12]
    assert seen == [(2, 0), (1, 0)]
    assert current() == (0, 0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.tensor([1.0], device="sim"),
        lambda: torch.as_tensor([1.0], device="sim"),
        lambda: torch.ones(1).to("sim"),
        lambda: torch.ones(1, device="sim"),
        lambda: torch.sparse_coo_tensor([[0]], [1.0], (1,), device="sim", check_invariants=True),
        lambda: torch.ones(1, device="sim:2").new([1.0]).to("sim"),
    ],
)
def test_a_device_without_an_index_is_the_gpu_of_the_node(make: Callable[[], torch.Tensor]) -> None:
    """Also in the first backward pass of a program that never chose another GPU."""
    x, devices = new_leaf(), []
    x.register_hook(lambda gradient: devices.append(str(make().device)))
    x.sum().backward()
    assert devices == [GPU]
    assert make().get_device() == 0


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("native_names", [True, False])
def test_torchscript_knows_functions_that_fill_in_the_gpu(native_names: bool) -> None:
    with ds.simulate(gpus=3, native_names=native_names):
        new_leaf().sum().backward()

        @torch.jit.script
        def shifted(x: torch.Tensor) -> torch.Tensor:
            return x + torch.tensor([1.0], device=x.device) + torch.as_tensor(2.0, device=x.device)

        assert shifted(torch.ones(2, device=GPU)).tolist() == [4, 4]


def checkpoint(reentrant: bool, note: Callable[[], None]) -> None:
    def part(x: torch.Tensor) -> torch.Tensor:
        if backward:
            note()
        return x * x

    backward = False
    y = torch.utils.checkpoint.checkpoint(part, new_leaf(), use_reentrant=reentrant)
    backward = True
    y.sum().backward()


def post_accumulate_hook(note: Callable[[], None]) -> None:
    leaf = new_leaf()
    leaf.register_post_accumulate_grad_hook(lambda _: note())
    leaf.sum().backward()


def module_hook(note: Callable[[], None]) -> None:
    layer = nn.Linear(3, 2, device=GPU)
    layer.register_full_backward_hook(lambda *_: note())
    layer(new_leaf()).sum().backward()


def node_hook(note: Callable[[], None]) -> None:
    y = new_leaf() * 2
    assert y.grad_fn is not None
    y.grad_fn.register_prehook(lambda _: note())
    y.grad_fn.register_hook(lambda *_: note())
    y.sum().backward()


def saved_tensors(note: Callable[[], None]) -> None:
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x.cpu(), lambda x: note() or x.to("sim")):
        y = (new_leaf().exp()).sum()
    y.backward()


def inner_gradient(note: Callable[[], None]) -> None:
    """The pass inside a node has its own, and what it leaves is the outer node's again."""

    def hook(_: torch.Tensor) -> None:
        with torch.enable_grad():
            inner, noted = new_leaf("sim:2"), []
            inner.register_hook(lambda _: noted.append(current()))
            torch.autograd.grad(inner.sum(), inner)
        assert noted == [(2, 0)]
        note()

    leaf = new_leaf()
    leaf.register_hook(hook)
    leaf.sum().backward()


CODE: dict[str, Callable[[Callable[[], None]], None]] = {
    "a checkpoint": lambda note: checkpoint(False, note),
    "a reentrant checkpoint": lambda note: checkpoint(True, note),
    "a hook of a gradient that was collected": post_accumulate_hook,
    "a hook of a module": module_hook,
    "hooks of a node": node_hook,
    "saved tensors": saved_tensors,
    "a gradient inside": inner_gradient,
}


@pytest.mark.parametrize("code", CODE)
def test_code_of_the_program_runs_on_the_gpu_of_its_node(code: str) -> None:
    noted: list[tuple[int, int]] = []
    with torch.accelerator.device_index(2):
        CODE[code](lambda: noted.append(current()))
        assert current() == (2, 0)
    assert set(noted) == {(1, 0)}


def test_a_gpu_that_a_hook_chooses_is_current_until_its_node_ends() -> None:
    x, chosen = new_leaf(), []

    def hook(_: torch.Tensor) -> None:
        torch.accelerator.set_device_index(2)
        chosen.append(current())

    y = x * 2
    y.register_hook(hook)
    x.register_hook(lambda _: chosen.append(current()))
    y.sum().backward()
    assert chosen == [(2, 0), (1, 0)]
    assert current() == (0, 0)


def test_a_node_on_the_host_runs_as_the_caller_does() -> None:
    x, noted = new_leaf("cpu"), []
    x.register_hook(lambda _: noted.append(current()))
    y = Doubled.apply(x.to(GPU)).cpu()
    with torch.accelerator.device_index(2):
        y.sum().backward()
        assert current() == (2, 0)
    assert noted == [(2, 0)]


def test_an_error_in_a_node_leaves_what_was_current() -> None:
    x = new_leaf()
    x.register_hook(lambda _: [][current()[0]])
    with pytest.raises(IndexError):
        x.sum().backward()
    assert current() == (0, 0)


def test_a_node_runs_in_the_stream_of_its_forward_pass(seen: list[tuple[int, int]]) -> None:
    """So do the hooks of a leaf, whose node is made for its first use."""
    first, second = torch.Stream(GPU), torch.Stream(GPU)
    leaf, noted = new_leaf(), []
    leaf.register_hook(lambda _: noted.append(current()))
    with first:
        y = Doubled.apply(leaf)
    with second:
        y = Doubled.apply(y)
    y = Doubled.apply(y)
    with torch.Stream(GPU):
        y.sum().backward()
    assert seen == [(1, 0), (1, second.stream_id), (1, first.stream_id)]
    assert noted == [(1, first.stream_id)]
    assert torch.accelerator.current_stream(1).stream_id == 0


def test_data_parallel_runs_functions_on_each_gpu(seen: list[tuple[int, int]]) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3, device="sim:0"))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return Doubled.apply(self.weight * x)

    net = nn.DataParallel(Net(), [0, 1, 2])
    net(torch.ones(6, 3, device="sim:0")).sum().backward()
    assert net.module.weight.grad.tolist() == [12, 12, 12]
    assert sorted(seen) == [(0, 0), (1, 0), (2, 0)]


@pytest.mark.parametrize("waits", [True, False])
def test_late_copies_obey_the_streams_of_a_backward_pass(waits: bool) -> None:
    """The engine orders its own streams, and not those that a hook uses beside them."""
    with ds.simulate(gpus=3, async_copies="late"):
        side, values = torch.Stream(GPU), []
        leaf, pinned = new_leaf(), torch.full((3,), 4.0).pin_memory()

        def hook(gradient: torch.Tensor) -> None:
            with side:
                copied = pinned.to(GPU, non_blocking=True)
            if waits:
                torch.accelerator.current_stream(1).wait_stream(side)
            values.append((gradient * copied).tolist())

        with torch.Stream(GPU):
            y = leaf * 2
        y.register_hook(hook)
        y.sum().backward()
    assert (values == [[4, 4, 4]]) is waits


def test_streams_are_ordered_around_a_backward_pass() -> None:
    """What is copied before it, or in one of its nodes, is complete for the stream that follows."""
    with ds.simulate(gpus=3, async_copies="late"):
        leaf, pinned = new_leaf(), torch.full((3,), 4.0).pin_memory()
        copies: list[torch.Tensor] = []
        with torch.Stream(GPU):
            y = leaf * 2
        y.register_hook(lambda gradient: copies.append(pinned.to(GPU, non_blocking=True)) or gradient * factor)
        factor = pinned.to(GPU, non_blocking=True)
        y.sum().backward()
        assert leaf.grad is not None
        assert (leaf.grad + copies[0]).tolist() == [12, 12, 12]
