"""The price of functions that watch or compute: namespaces, gradients, logs, ledger and guard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from benchmarks.native_parts import PARTS
from benchmarks.native_training import WORDS
from benchmarks.paired import interleaved, spread
from benchmarks.record import Row
from benchmarks.session import Rival, Session

if TYPE_CHECKING:
    from collections.abc import Callable

SAME = 1.02
"""A namespace's function is the framework's own: 1.0, within the noise."""
GRADIENT = 1.05
APPENDS, APPEND = 500, 1.0
SNAPSHOTS: dict[str, Callable[[Any], Any]] = {
    "torch": lambda x: x.detach().clone(),
    "paddle": lambda x: x.detach().clone(),
    "mxnet": lambda x: x.detach().copy(),
}
"""The native call that keeps the current value of a tensor; TensorFlow's and JAX's tensors cannot change."""
LEDGER, COPIES = 3.0, 50
"""Microseconds that an open ledger may add to a copy, and the number of copies in one turn."""
GUARD, STEPS = 1.1, 5


def test_namespace(benchmark: Any, session: Session) -> None:
    """The namespace is requested once, as in a program."""
    x = ds.ones((4, 4), dtype="float32")
    native = PARTS[session.record.environment].tanh
    names = {"x": x, "xp": ds.namespace(x), "np": np}
    session.versus(
        benchmark, "watching", "namespace", "xp.tanh(x)", [Rival(f"{native}(x)", f"{native}(x)", SAME)], names
    )


def test_value_and_grad(benchmark: Any, session: Session) -> None:
    """Ten operators of the framework on 64 x 64 numbers."""
    if session.backend not in WORDS:
        pytest.skip(f"{session.backend} has no gradients")
    words = WORDS[session.backend]()
    tanh, exp, mean = words.math.tanh, words.math.exp, words.mean

    def loss(x: Any) -> Any:
        y = tanh(x * 0.5) + 1.0
        y = exp(y * -0.5) * x
        y = tanh(y + 0.1) * y
        return mean(y)

    native = words.value_and_grad(lambda weights, images, labels: loss(weights[0]))
    names = {"x": ds.ones((64, 64), dtype="float32"), "native": native, "step": ds.value_and_grad(loss)}
    rivals = [Rival("the framework's own gradient", "native([x], None, None)", GRADIENT)]
    session.versus(benchmark, "watching", "value_and_grad, ten operators", "step(x)", rivals, names)


def test_metric_log(benchmark: Any, session: Session) -> None:
    """A log of scalars, compared with a list that is stacked and read at the end.

    A list of references does less: where tensors can change, the log keeps the value of this moment, without its graph.
    """
    if session.backend not in WORDS:
        pytest.skip(f"{session.backend} has nothing to stack on a device")
    read = WORDS[session.backend]().read
    value = ds.full((), 1.0, dtype="float32")

    def ours() -> object:
        log = ds.MetricLog(session.d, capacity=APPENDS)
        for _ in range(APPENDS):
            log.append(value)
        return log.flush()

    def natively() -> object:
        values = []
        for _ in range(APPENDS):
            values.append(value)
        return read(values)

    snapshot = SNAPSHOTS.get(session.backend)

    def with_copies() -> object:
        assert snapshot is not None
        values = []
        for _ in range(APPENDS):
            values.append(snapshot(value))
        return read(values)

    rivals = [Rival("a list, stacked at the end", natively, APPEND)]
    if snapshot is not None:
        rivals.append(Rival("a list of copies, stacked at the end", with_copies, APPEND))
    session.versus(benchmark, "watching", f"MetricLog of {APPENDS} numbers", ("append and flush", ours), rivals, {})


def test_ledger(benchmark: Any, session: Session) -> None:
    """The same copies with a ledger open."""
    x = ds.ones(4, dtype="float32")

    def copies() -> None:
        for _ in range(COPIES):
            ds.copy(x, session.d)

    def recorded() -> None:
        with ds.transfers():
            copies()

    times = interleaved(benchmark, {"": recorded, "without": copies}, {}, session.rounds)
    added = spread([(ours - other) * 1e6 / COPIES for ours, other in zip(times[""], times["without"], strict=True)])
    row = Row("watching", "a ledger open, for each copy", "ds.copy(x, d)", "no ledger", target=LEDGER, unit="us")
    session.add(row, added, rounds=session.rounds)


def test_guard(benchmark: Any, session: Session) -> None:
    """Five training steps of a small network under a guard that raises errors, with its opening."""
    _compare_guarded(benchmark, session, "cpu", "a guard open on training steps")


@pytest.mark.simulated
def test_guard_on_a_gpu(benchmark: Any, session: Session) -> None:
    """The same steps on a simulated GPU: only a process with a GPU has transfers to report."""
    _compare_guarded(benchmark, session, "gpu", "a guard open on training steps, on a simulated GPU")


def _compare_guarded(benchmark: Any, session: Session, device: str, label: str) -> None:
    if session.backend not in WORDS:
        pytest.skip(f"{session.backend} has no gradients")
    words = WORDS[session.backend]()
    tanh, matmul, mean = words.math.tanh, words.math.matmul, words.mean
    loss = lambda weights, x, y: mean(tanh(matmul(tanh(matmul(x, weights[0])), weights[1])) * y)  # noqa: E731
    step = words.value_and_grad(loss)
    with ds.on(device):
        weights = [ds.random.normal(size=(128, 128)), ds.random.normal(size=(128, 8))]
        x, y = ds.ones((64, 128), dtype="float32"), ds.ones((64, 8), dtype="float32")

    def train() -> None:
        new = weights
        with ds.on(device):
            for _ in range(STEPS):
                _, grads = step(new, x, y)
                new = [w - 0.01 * g for w, g in zip(new, grads, strict=True)]

    versus_guarded(benchmark, session, label, train)


def versus_guarded(benchmark: Any, session: Session, label: str, train: Callable[[], object]) -> None:
    """Compare a training loop under a guard that raises errors, with its opening, with the loop alone."""

    def guarded() -> None:
        with ds.guard("error"):
            train()

    session.versus(benchmark, "watching", label, ("ds.guard('error')", guarded), [Rival("no guard", train, GUARD)], {})
