"""Tests of sixteen threads on simulated GPUs in PyTorch: no crash, no wrong value, and memory back to zero."""

from __future__ import annotations

import gc
import threading
import time

import pytest
import torch

import devshim as ds

THREADS = 16


@pytest.fixture(autouse=True)
def gpus():
    ds.use("torch")
    with ds.simulate(gpus=4):
        yield
    ds.use(None)


def place_and_compute(number, turn):
    """Move there and back, in views and across GPUs."""
    x = torch.full((64, 8), float(number))
    there = ds.place(x, f"gpu:{number % 4}")
    there = there[::2].t() @ there[::2]
    assert there.get_device() == number % 4
    there = ds.place(there, f"gpu:{(number + turn) % 4}").add_(1)
    assert ds.to_numpy(there).min() == 32 * number * number + 1


def train(number, turn):
    """Compute gradients and optimizer steps, with the same numbers each time."""
    device = torch.device("sim", number % 4)
    weight = torch.nn.Parameter(torch.full((4, 4), 0.5, device=device))
    optimizer = torch.optim.SGD([weight], lr=0.5)
    (torch.full((2, 4), float(number), device=device) @ weight).sum().backward()
    assert weight.grad.eq(2 * number).all().item()
    optimizer.step()
    assert weight.eq(0.5 - number).all().item()


def current(number, turn):
    """Check that the current GPU is the thread's own."""
    with torch.accelerator.device_index(number % 4):
        time.sleep(0)
        assert torch.zeros(1, device="sim").get_device() == number % 4
        assert torch.ones(2).to("sim").get_device() == number % 4


def draw(number, turn):
    """Draw from a separate generator: the numbers do not depend on other threads."""
    generator = torch.Generator(device=f"sim:{number % 4}").manual_seed(number)
    drawn = torch.rand(8, device=f"sim:{number % 4}", generator=generator)
    assert torch.equal(drawn.cpu(), torch.rand(8, generator=torch.Generator().manual_seed(number)))
    kept = torch.nn.functional.dropout(torch.ones(100, device=f"sim:{number % 4}"))
    assert set(kept.unique().tolist()) <= {0.0, 2.0}


@pytest.mark.parametrize("work", [place_and_compute, train, current, draw])
def test_sixteen_threads(work, pytestconfig):
    end = time.monotonic() + pytestconfig.getoption("--devshim-stress")
    failures, turns = [], []

    def repeat(number):
        turn = 0
        try:
            while turn == 0 or time.monotonic() < end:
                work(number, turn)
                turn += 1
        except BaseException as error:
            failures.append(error)
        turns.append(turn)

    threads = [threading.Thread(target=repeat, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    assert len(turns) == THREADS
    gc.collect()
    assert [ds.memory(f"gpu:{i}").used for i in range(4)] == [0] * 4


def test_gradients_that_are_computed_at_the_same_time_keep_no_graph():
    """A thread of `parallel` is not inside the `value_and_grad` of another one, which would keep its graph."""
    meet = threading.Barrier(2, timeout=30)

    def loss(weight):
        meet.wait()
        return (weight * weight).sum()

    weights = [torch.ones(3, device=f"sim:{i}", requires_grad=True) for i in range(2)]
    for value, grad in ds.parallel([ds.value_and_grad(loss)] * 2, weights):
        assert not value.requires_grad
        assert not grad.requires_grad


def test_an_outer_gradient_reaches_through_threads():
    """Threads that start inside a `value_and_grad` are inside it."""

    def inner(weight):
        found = ds.parallel([ds.value_and_grad(lambda w: (w**3).sum())], [weight])
        return found[0][1].sum()

    _, second = ds.value_and_grad(inner)(torch.full((3,), 2.0, device="sim:1"))
    assert second.tolist() == [12.0] * 3
