"""The overhead of a neutral program: the loop of examples/lenet.py, and the same loop in the framework's own code.

Both train the same network on the same batches of NumPy arrays, on the CPU, and must find the same losses. `test_cards`
trains them on a real GPU.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from example_programs import load_example

import devshim as ds
from benchmarks.native_training import WORDS, Loop, Words, compare
from benchmarks.session import Session
from benchmarks.test_observers import versus_guarded

ROWS, BATCHES = 64, 7
RATE, MOMENTUM = 0.03, 0.9
TARGET = 1.05


class Neutral:
    """The loop of the example, on one device."""

    def __init__(self, lenet: ModuleType, device: ds.Device) -> None:
        self.lenet, self.device = lenet, device
        self.weights = ds.place(lenet.initial(), device)
        self.momenta = lenet.each(ds.zeros_like, self.weights)
        self.step = ds.value_and_grad(lenet.loss)

    def train(self, batches: list[dict[str, np.ndarray]]) -> np.ndarray:
        """Return the loss of each batch."""
        each, params, momenta = self.lenet.each, self.weights, self.momenta
        losses = ds.MetricLog(capacity=len(batches))
        for batch in ds.prefetch(batches, self.device):
            value, grads = self.step(params, batch)
            momenta = each(lambda momentum, grad: MOMENTUM * momentum + grad, momenta, grads)
            params = each(lambda x, momentum: x - RATE * momentum, params, momenta)
            losses.append(value)
        return losses.flush()


def programs(
    session: Session, device: ds.Device, words: Words | None = None
) -> tuple[Neutral, Loop, list[dict[str, np.ndarray]]]:
    """Return the two loops, with the same first weights, and their batches.

    Args:
        session: The session of the framework.
        device: The device of the neutral loop.
        words: The functions of the native loop, if its device is not the CPU.
    """
    if session.backend not in WORDS:
        pytest.skip(f"{session.backend} has no gradients")
    words = words or WORDS[session.backend]()
    lenet = load_example("lenet")
    images, labels = lenet.images()
    rows = np.arange(ROWS * BATCHES).reshape(BATCHES, ROWS)
    batches = [{"images": images[each], "labels": labels[each]} for each in rows]
    neutral = Neutral(lenet, device)
    weights = [ds.to_numpy(x) for _, x in sorted(ds.leaves(neutral.weights).items())]
    weights = [x for pair in zip(weights[1::2], weights[::2], strict=True) for x in pair]  # each bias after its matrix
    return neutral, Loop(words, weights, RATE, MOMENTUM), batches


def test_training(benchmark: Any, session: Session) -> None:
    """Each loop trains from the same first weights."""
    neutral, native, batches = programs(session, ds.cpu())
    compare(benchmark, session, f"LeNet, {BATCHES} batches of {ROWS} images", neutral, native, batches, TARGET)


def test_guarded_training(benchmark: Any, session: Session) -> None:
    """The native loop under a guard: the price of the guard alone."""
    _, native, batches = programs(session, ds.cpu())
    label = f"a guard open on LeNet, {BATCHES} batches of {ROWS} images"
    versus_guarded(benchmark, session, label, lambda: native.train(batches))
