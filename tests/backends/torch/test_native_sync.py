"""Tests of ``torch.cuda.set_sync_debug_mode`` with PyTorch's own names: it reports what a build for CUDA reports.

PyTorch's own test of the mode lists the calls that are reported and those that are not (``test_sync_warning``).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import devshim as ds

TEXT = "called a synchronizing CUDA operation"


class Tensors:
    """The tensors of a test; those on the host were copied before the mode is set."""

    def __init__(self) -> None:
        self.x, self.y = torch.arange(4.0, device="cuda"), torch.ones((), device="cuda")
        self.numbers, self.host_numbers = torch.tensor([0, 2], device="cuda"), torch.tensor([0, 2])
        self.count = torch.full((1,), 2, device="cuda")
        self.mask, self.host_mask = self.x > 1, torch.tensor([True, False, True, True])
        self.pinned, self.host = torch.ones(4).pin_memory(), torch.ones(4)


@pytest.fixture
def t() -> Iterator[Tensors]:
    """Simulate two GPUs under PyTorch's names for cards, and return tensors."""
    with ds.using("torch"), ds.simulate(2, native_names=True):
        yield Tensors()
    assert not hasattr(torch._C, "_cuda_get_sync_debug_mode")


def write(x: Any, index: Any, value: Any) -> None:
    x[index] = value


REPORTED: dict[str, Callable[[Tensors], object]] = {
    "item": lambda t: t.y.item(),
    "bool": lambda t: bool(t.y),
    "cpu": lambda t: t.x.cpu(),
    "tolist": lambda t: t.x.tolist(),
    "to a card": lambda t: t.host.cuda(),
    "pinned, blocking": lambda t: t.pinned.to("cuda"),
    "tensor": lambda t: torch.tensor([1.0], device="cuda"),
    "copy_": lambda t: t.x.copy_(t.host),
    "nonzero": lambda t: t.x.nonzero(),
    "where": lambda t: torch.where(t.mask),
    "masked_select": lambda t: t.x.masked_select(t.mask),
    "mask": lambda t: t.x[t.mask],
    "write by a mask": lambda t: write(t.x, t.mask, t.y),
    "index on the host": lambda t: t.x[t.host_numbers],
    "write by an index on the host": lambda t: write(t.x, t.host_numbers, t.y),
    "one_hot": lambda t: F.one_hot(t.numbers),
    "repeat_interleave": lambda t: t.x.repeat_interleave(t.count),
    "unique": lambda t: t.x.unique(),
    "equal": lambda t: torch.equal(t.x, t.x),
    "inv": lambda t: torch.linalg.inv(t.x.view(2, 2) + 1),
    "a stream": lambda t: torch.cuda.current_stream().synchronize(),
}
PASSES: dict[str, Callable[[Tensors], object]] = {
    "operators": lambda t: (t.x + 1).sum(),
    "any": lambda t: torch.any(t.y),
    "to the host, not blocking": lambda t: t.x.to("cpu", non_blocking=True),
    "pinned, not blocking": lambda t: t.pinned.to("cuda", non_blocking=True),
    "to another card": lambda t: t.x.to("cuda:1"),
    "nothing to copy": lambda t: t.x[:0].cpu(),
    "synchronize": lambda t: torch.cuda.synchronize(),
    "an event": lambda t: torch.cuda.current_stream().record_event().synchronize(),
    "write a number by a mask": lambda t: write(t.x, t.mask, 1.0),
    "a mask on the host": lambda t: t.x[t.host_mask],
    "write by a mask on the host": lambda t: write(t.x, t.host_mask, t.y),
    "index": lambda t: t.x[t.numbers],
    "write by an index": lambda t: write(t.x, t.numbers, t.y),
    "one_hot of a known size": lambda t: F.one_hot(t.numbers, 4),
    "repeat_interleave of a known size": lambda t: t.x.repeat_interleave(t.count, output_size=8),
    "randperm": lambda t: torch.randperm(100, device="cuda"),
}


def run_in_mode(mode: str, call: Callable[[Tensors], object], t: Tensors) -> list[warnings.WarningMessage]:
    """Return the warnings of a call in a mode."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode(mode)
        seen.clear()  # PyTorch says once that the mode is a prototype
        try:
            call(t)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return seen


@pytest.mark.parametrize("name", REPORTED)
def test_a_call_for_which_the_host_waits_is_reported(t: Tensors, name: str) -> None:
    seen = run_in_mode("warn", REPORTED[name], t)
    assert {str(each.message) for each in seen} == {TEXT}
    assert seen[0].filename.startswith((__file__, torch.__path__[0])), "the line that calls PyTorch's C++"
    with pytest.raises(RuntimeError) as caught:
        run_in_mode("error", REPORTED[name], t)
    assert (type(caught.value), str(caught.value)) == (RuntimeError, TEXT)
    REPORTED[name](t)


@pytest.mark.parametrize("name", PASSES)
def test_a_call_that_does_not_wait_passes(t: Tensors, name: str) -> None:
    assert run_in_mode("warn", PASSES[name], t) == []
    run_in_mode("error", PASSES[name], t)


@pytest.mark.usefixtures("t")
def test_the_mode_has_pytorchs_own_words() -> None:
    with pytest.warns(UserWarning, match="Synchronization debug mode is a prototype feature"):
        torch.cuda.set_sync_debug_mode(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.cuda.set_sync_debug_mode("error")
        assert torch.cuda.get_sync_debug_mode() == 2
        with pytest.raises(RuntimeError, match="expected one of 0,1,2"):
            torch.cuda.set_sync_debug_mode(3)
        torch.cuda.set_sync_debug_mode(0)


def test_a_guard_leaves_the_mode_to_the_program(t: Tensors) -> None:
    with ds.guard("error"):
        assert torch.cuda.get_sync_debug_mode() == 0
        with pytest.raises(ds.TransferError, match=r"item\(\)"):
            t.y.item()


@pytest.mark.parametrize("starts_first", ["guard", "mode"])
def test_a_guard_and_the_mode_may_end_in_any_order(t: Tensors, starts_first: str) -> None:
    from devshim_backends._torch.simulation import hooks
    from devshim_backends._torch.simulation.internals import kernels

    found = [(hooks._compute, kernels.read, kernels.on_blocking_copy)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if starts_first == "guard":
            with ds.guard("error"):
                torch.cuda.set_sync_debug_mode("error")
            with pytest.raises(RuntimeError, match=TEXT):
                t.y.item()
            torch.cuda.set_sync_debug_mode("default")
        else:
            torch.cuda.set_sync_debug_mode("error")
            with ds.guard("error"):
                torch.cuda.set_sync_debug_mode("default")
                with pytest.raises(ds.TransferError):
                    t.y.item()
    found.append((hooks._compute, kernels.read, kernels.on_blocking_copy))
    assert found[0] == found[1]
    assert t.y.item() == 1


def test_the_end_of_native_names_ends_the_mode() -> None:
    with ds.using("torch"):
        with ds.simulate(1, native_names=True), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.cuda.set_sync_debug_mode("error")
        with ds.simulate(1):
            assert ds.ones((), device="gpu:0").item() == 1
