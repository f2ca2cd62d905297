"""Work that a program repeats at each step: asking for the devices, and placing a batch of 300 tensors."""

from __future__ import annotations

import statistics
import time
from typing import Any

import pytest

import devshim as ds
from benchmarks.native_training import WORDS
from benchmarks.record import Row
from benchmarks.session import Rival, Session
from benchmarks.test_trees import nested

ASKED, STEPS = 1000, 5
TARGET = 1.02
COUNT = {
    "torch": "torch.cuda.device_count()",
    "tensorflow": "len(tf.config.list_physical_devices('GPU'))",
    "jax": "len([each for each in jax.devices() if each.platform != 'cpu'])",
    "paddle": "paddle.device.cuda.device_count()",
    "mxnet1": "mx.context.num_gpus()",
    "mxnet2": "mx.device.num_gpus()",
}
"""The native calls that return the number of GPUs."""
SIMULATED, SIMULATED_MS = 1000, 10.0


def test_devices(benchmark: Any, session: Session) -> None:
    """As in a function that chooses its device each time that it is called."""
    native = COUNT.get(session.record.environment)
    rivals = [Rival(native, f"for _ in range({ASKED}): {native}", TARGET)] if native else []
    ours = f"for _ in range({ASKED}): ds.device_count()"
    session.versus(benchmark, "steps", f"devices asked {ASKED:,} times", ours, rivals, {})


def test_batch_tree(benchmark: Any, session: Session) -> None:
    """Five steps: each places its batch, which is there already, and computes a gradient of two layers."""
    if session.backend not in WORDS:
        pytest.skip(f"{session.backend} has no gradients")
    words = WORDS[session.backend]()
    tanh, matmul, mean = words.math.tanh, words.math.matmul, words.mean
    step = words.value_and_grad(lambda w, x, y: mean(tanh(matmul(tanh(matmul(x, w[0])), w[1])) * y))
    weights = [ds.random.normal(size=(784, 256)), ds.random.normal(size=(256, 8))]
    batch = {**nested(), "x": ds.ones((64, 784), dtype="float32"), "y": ds.ones((64, 8), dtype="float32")}
    loop = session.native.loops()["nested"]

    def steps(place: Any) -> object:
        new = weights
        for _ in range(STEPS):
            here = place(batch)
            _, grads = step(new, here["x"], here["y"])
            new = [w - 0.01 * g for w, g in zip(new, grads, strict=True)]
        return words.read([new[0][0, 0]])

    rivals = [Rival(f"a loop of {session.native.loop_text()}", lambda: steps(loop), TARGET)]
    ours = ("ds.place(batch, d)", lambda: steps(lambda batch: ds.place(batch, session.d)))
    session.versus(benchmark, "steps", "a batch of 300 tensors at each step", ours, rivals, {})


def test_many_simulated_devices(session: Session) -> None:
    """A thousand simulated GPUs on NumPy, where they are labels; the other frameworks simulate fewer."""
    if session.backend != "numpy":
        pytest.skip("other frameworks simulate at most 64 GPUs")
    times: list[float] = []
    with ds.simulate(SIMULATED):
        for _ in range(session.rounds + 1):
            begun = time.perf_counter()
            for device in ds.devices():
                ds.describe(device)
            times.append((time.perf_counter() - begun) * 1e3)
    case, ours = f"{SIMULATED:,} simulated GPUs listed and described", "[ds.describe(d) for d in ds.devices()]"
    value = statistics.median(times[1:])
    row = Row("steps", case, ours, value=value, target=SIMULATED_MS, unit="ms", seconds=value / 1e3)
    session.record.rows.append(row)
