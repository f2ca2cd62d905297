"""The training loops of other libraries, compared with devshim's: accelerate's, and `fit` of Keras."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import devshim as ds
from benchmarks.session import Rival, Session

ROWS, BATCHES, SIDE, CLASSES = 64, 7, 20, 10
RATE, MOMENTUM = 0.03, 0.9
ROUNDS = 21
TARGET = 1.0
CASE = f"{BATCHES} batches of {ROWS} images"


def data() -> tuple[np.ndarray, np.ndarray]:
    """Return images (rows, height, width, 1) and labels."""
    rng = np.random.default_rng(0)
    images = rng.normal(size=(ROWS * BATCHES, SIDE, SIDE, 1)).astype("float32")
    return images, rng.integers(CLASSES, size=ROWS * BATCHES)


def test_accelerate(benchmark: Any, session: Session) -> None:
    """The same model, optimizer and batches in the loop that each documents; both begin with the same weights."""
    if session.backend != "torch":
        pytest.skip("accelerate is for PyTorch")
    import torch
    from torch import nn

    accelerate = pytest.importorskip("accelerate")
    images, labels = data()
    rows = torch.from_numpy(images.transpose(0, 3, 1, 2).copy())
    pairs = torch.utils.data.TensorDataset(rows, torch.from_numpy(labels))

    def parts() -> tuple[Any, Any, Any]:
        torch.manual_seed(0)
        model = nn.Sequential(
            *(nn.Conv2d(1, 6, 5), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(64, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, CLASSES)),
        )
        optimizer = torch.optim.SGD(model.parameters(), RATE, MOMENTUM)
        return model, optimizer, torch.utils.data.DataLoader(pairs, ROWS)

    accelerator = accelerate.Accelerator(cpu=True)
    theirs = accelerator.prepare(*parts())
    model, optimizer, loader = parts()
    model = ds.place(model, "cpu")

    def natively(model: Any, optimizer: Any, loader: Any, backward: Any) -> list[float]:
        losses = []
        for x, y in loader:
            optimizer.zero_grad()
            value = nn.functional.cross_entropy(model(x), y)
            backward(value)
            optimizer.step()
            losses.append(value.detach())
        return torch.stack(losses).tolist()

    ours = lambda: natively(model, optimizer, ds.prefetch(loader, "cpu"), lambda value: value.backward())  # noqa: E731
    others = lambda: natively(*theirs, accelerator.backward)  # noqa: E731
    np.testing.assert_allclose(ours(), others(), rtol=1e-5)
    rivals = [Rival("accelerate: Accelerator.prepare", others, TARGET, peer=True)]
    label = ("place and prefetch", ours)
    session.versus(benchmark, "training", f"a loop of PyTorch, {CASE}", label, rivals, {}, rounds=_rounds(session))


def test_keras(benchmark: Any, session: Session) -> None:
    """The same Keras model with the same optimizer; `fit` compiles the step on TensorFlow and JAX."""
    if session.backend not in ("torch", "tensorflow", "jax"):
        pytest.skip(f"Keras does not run on {session.backend}")
    os.environ["KERAS_BACKEND"] = session.backend
    keras = pytest.importorskip("keras")
    images, labels = data()
    batches = [(images[i : i + ROWS], labels[i : i + ROWS]) for i in range(0, len(images), ROWS)]

    def built() -> tuple[Any, Any]:
        keras.utils.set_random_seed(0)
        dense, conv = keras.layers.Dense, keras.layers.Conv2D
        layers = [conv(6, 5, activation="tanh"), keras.layers.MaxPooling2D(2), conv(16, 5, activation="tanh")]
        layers += [keras.layers.MaxPooling2D(2), keras.layers.Flatten(), dense(120, activation="tanh")]
        layers += [dense(84, activation="tanh"), dense(CLASSES)]
        model = keras.Sequential([keras.Input((SIDE, SIDE, 1)), *layers])
        return model, keras.optimizers.SGD(RATE, MOMENTUM)

    wrong = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model, optimizer = built()
    optimizer.build(model.trainable_variables)
    step = ds.value_and_grad(lambda model, x, y: wrong(y, model(x)))

    def ours() -> np.ndarray:
        losses = ds.MetricLog(capacity=BATCHES)
        for x, y in ds.prefetch(batches, "cpu"):
            value, grads = step(model, x, y)
            optimizer.apply(list(grads.values()), model.trainable_variables)
            losses.append(value)
        return losses.flush()

    other, others_optimizer = built()
    other.compile(others_optimizer, wrong)

    def theirs() -> float:
        return float(other.fit(images, labels, ROWS, epochs=1, shuffle=False, verbose=0).history["loss"][0])

    np.testing.assert_allclose(ours().mean(), theirs(), rtol=1e-4)
    rivals = [Rival("keras: model.fit", theirs, TARGET, peer=True)]
    label = ("value_and_grad and prefetch", ours)
    session.versus(benchmark, "training", f"a Keras model, {CASE}", label, rivals, {}, rounds=_rounds(session))


def _rounds(session: Session) -> int:
    return min(ROUNDS, session.rounds)
