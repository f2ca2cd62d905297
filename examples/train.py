"""Train a small network with stochastic gradient descent by hand: one loop for every framework.

``python examples/train.py torch gpu:0`` prints the loss of each step. Nothing here depends on the framework: `devshim`
computes the gradients, and every framework's tensors have the operators of Python.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import devshim as ds

RATE = 0.05
STEPS = 20
ROWS = 16


def predict(params: Any, x: Any) -> Any:
    """Return the outputs, of shape (rows, 1), for inputs of shape (rows, 3)."""
    hidden = x @ params["w1"] + params["b1"]
    return (hidden * hidden) @ params["w2"] + params["b2"]


def loss(params: Any, batch: Any) -> Any:
    """Return the mean squared error, a scalar."""
    error = predict(params, batch["x"]) - batch["y"]
    mean = ds.full((1, ROWS), 1 / ROWS, like=error)
    return (mean @ (error * error))[0, 0]


def update(params: Any, grads: Any) -> Any:
    """Return the parameters after one step."""
    return {name: params[name] - RATE * grads[name] for name in params}


def initial() -> dict[str, np.ndarray]:
    """Return the first parameters."""
    rng = np.random.default_rng(0)
    shapes = {"w1": (3, 4), "b1": (1, 4), "w2": (4, 1), "b2": (1, 1)}
    return {name: rng.normal(scale=0.5, size=shape).astype("float32") for name, shape in shapes.items()}


def batches() -> list[dict[str, np.ndarray]]:
    """Return the batch of each step: inputs, and the sums of their squares."""
    rng = np.random.default_rng(1)
    inputs = rng.uniform(-1, 1, size=(STEPS, ROWS, 3)).astype("float32")
    return [{"x": x, "y": (x * x).sum(1, keepdims=True)} for x in inputs]


def train(device: str) -> np.ndarray:
    """Return the loss of each step."""
    params = {name: ds.from_numpy(value, device) for name, value in initial().items()}
    step = ds.value_and_grad(loss)
    losses = ds.MetricLog(device, capacity=STEPS)
    for arrays in batches():
        batch = {name: ds.from_numpy(a, device) for name, a in arrays.items()}
        value, grads = step(params, batch)
        params = ds.run(update, params, grads)
        losses.append(value)
    return losses.flush()


if __name__ == "__main__":
    backend, device = sys.argv[1:]
    ds.use(backend)
    for number, value in enumerate(train(device)):
        print(number, repr(float(value)))
