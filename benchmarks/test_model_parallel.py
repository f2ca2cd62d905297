"""A model on two devices: an MLP whose layers are on two simulated GPUs, and the same program in native code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import devshim as ds
from benchmarks.native_training import WORDS, Words, compare
from benchmarks.session import Session

ROWS, INPUTS, HIDDEN, CLASSES, BATCHES = 64, 784, 256, 10, 4
RATE = 0.03
TARGET = 1.02
NO_GRADIENT = {"tensorflow": "tf.identity(x)", "paddle": "x.to(n)"}
"""Native moves through which no gradient comes back to the first of two simulated GPUs."""


def weights() -> list[np.ndarray]:
    """Return the weights and biases of the two layers."""
    rng = np.random.default_rng(0)
    shapes = [(INPUTS, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,)]
    return [(rng.normal(size=shape) * 0.05).astype("float32") for shape in shapes]


def batches() -> list[tuple[np.ndarray, np.ndarray]]:
    """Return images and the values to approach."""
    rng = np.random.default_rng(1)
    make = lambda columns: rng.normal(size=(ROWS, columns)).astype("float32")  # noqa: E731
    return [(make(INPUTS), make(CLASSES)) for _ in range(BATCHES)]


class Neutral:
    """The program with devshim."""

    def __init__(self) -> None:
        self.first, self.second = ds.gpu(0), ds.gpu(1)
        w, b, v, c = (ds.from_numpy(each) for each in weights())
        self.params = [*ds.place([w, b], self.first), *ds.place([v, c], self.second)]
        self.step = ds.value_and_grad(self.loss)

    def loss(self, params: Any, x: Any, y: Any) -> Any:
        """Return the loss; the hidden layer is copied to the second device."""
        xp = ds.namespace(x)
        w, b, v, c = params
        hidden = ds.place(xp.tanh(xp.matmul(x, w) + b), self.second)
        return xp.mean((xp.matmul(hidden, v) + c - y) ** 2)

    def train(self, data: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        """Return the loss of each batch."""
        params, losses = self.params, []
        for images, wanted in data:
            x = ds.from_numpy(images, self.first)
            y = ds.from_numpy(wanted, self.second)
            value, grads = self.step(params, x, y)
            params = [p - RATE * g for p, g in zip(params, grads, strict=True)]
            losses.append(value)
        return np.array([float(ds.to_numpy(each)) for each in losses])


class Natively:
    """The same program in the framework's own code, on the framework's own names of the same two devices."""

    def __init__(self, session: Session) -> None:
        self.words: Words = WORDS[session.backend]()
        self.moved = eval(f"lambda x, n: {session.native.move}", session.native.begin())
        self.first, self.second = ds.gpu(0).native(), ds.gpu(1).native()
        where = (self.first, self.first, self.second, self.second)
        self.params = [self.moved(self.words.asarray(x), n) for x, n in zip(weights(), where, strict=True)]

    def loss(self, params: Any, x: Any, y: Any) -> Any:
        """Return the loss; the hidden layer is copied to the second device."""
        math = self.words.math
        w, b, v, c = params
        hidden = self.moved(math.tanh(math.matmul(x, w) + b), self.second)
        return self.words.mean((math.matmul(hidden, v) + c - y) ** 2)

    def train(self, data: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        """Return the loss of each batch."""
        step, asarray = self.words.value_and_grad(self.loss), self.words.asarray
        params, losses = self.params, []
        for images, wanted in data:
            x, y = self.moved(asarray(images), self.first), self.moved(asarray(wanted), self.second)
            value, grads = step(params, x, y)
            params = [p - RATE * g for p, g in zip(params, grads, strict=True)]
            losses.append(value)
        return np.array([float(ds.to_numpy(each)) for each in losses])


@pytest.mark.simulated
def test_model_parallel(benchmark: Any, session: Session) -> None:
    """Both find the same losses."""
    if session.backend not in WORDS:
        pytest.skip(f"{session.backend} has no gradients")
    if move := NO_GRADIENT.get(session.backend):
        pytest.skip(f"{move} of {session.backend} has no gradient between simulated GPUs")
    data, neutral, native = batches(), Neutral(), Natively(session)
    case = f"MLP on two simulated GPUs, {BATCHES} batches of {ROWS}"
    compare(benchmark, session, case, neutral, native, data, TARGET)
