"""The cost of simulation: the same work on a simulated GPU and on the CPU, which computes both.

The CPU's turns are in their own process, without simulated GPUs: see `benchmarks.work`. Only one process works at
a time. If the framework has several CPU devices itself, a third process works on the second of them: its rows have what
devshim adds, without what several devices cost the framework. All times are processor times.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from timeit import Timer
from typing import Any

import pytest

import devshim as ds
from benchmarks.operators import COMPOSED, statements
from benchmarks.paired import batch_of, spread
from benchmarks.record import Row
from benchmarks.session import Session
from benchmarks.work import MLP, RESNET, SECOND, STEP, WORK

TARGETS = {"torch": None, "paddle": 1.3}
"""The largest allowed ratio of a step, where it is not the usual one."""
TARGET = 1.1
MICROSECONDS = 10
"""The most that an operator of PyTorch may take longer."""


class CPU:
    """A process that does the same work on the CPU.

    Args:
        environment: The framework, for MXNet with its major version.
        options: Those of `benchmarks.work`.
    """

    def __init__(self, environment: str, *options: str) -> None:
        command = [sys.executable, "-m", "benchmarks.work", environment, *options]
        root = Path(__file__).resolve().parents[1]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root)

    def seconds(self, case: str, number: int) -> float:
        """Return the seconds that a case takes, each time that it runs."""
        sent, answers = self._process.stdin, self._process.stdout
        assert sent is not None
        assert answers is not None
        print(number, case, file=sent, flush=True)
        return float(answers.readline())

    def end(self) -> None:
        """End the process."""
        self._process.communicate()


@pytest.fixture(scope="module")
def cpus(session: Session) -> Iterator[dict[str, CPU]]:
    """Return the processes for the CPU's turns, by what their rows name them."""
    found = {"on the CPU": CPU(session.record.environment)}
    if session.backend in SECOND:
        found["on its second CPU, without devshim"] = CPU(session.record.environment, "--second")
    yield found
    for cpu in found.values():
        cpu.end()


def _measure(benchmark: Any, session: Session, cpus: dict[str, CPU], names: str) -> None:
    """Time each case in turns, A B B A, and write its rows."""
    work, composed = WORK[session.backend](ds.gpu(0).native()), set(statements(COMPOSED))
    for case, call in work.items():
        timer = Timer(call, timer=process_time)
        number = batch_of(timer)
        for rival, cpu in cpus.items():
            cpu.seconds(case, number)
            ours, others = [], []
            for _ in range(session.rounds // 2):
                ours.append(timer.timeit(number) / number)
                others += [cpu.seconds(case, number), cpu.seconds(case, number)]
                ours.append(timer.timeit(number) / number)
            pairs = list(zip(ours, others, strict=True))
            is_step = case.startswith((STEP, RESNET, MLP))
            values = [a / b if is_step else (a - b) * 1e6 for a, b in pairs]
            row = Row(
                "simulation",
                case + names,
                "on a simulated GPU",
                rival,
                target=None if case in composed else _target(session.backend, case),
                unit="" if is_step else "us more",
            )
            session.add(row, spread(values), statistics.median(ours), len(ours))
    benchmark.pedantic(call, rounds=1)


def _target(backend: str, case: str) -> float | None:
    """Return the largest allowed ratio of a step, or the most microseconds of an operator."""
    if case.startswith(MLP):  # many small operators, more than a program has beside its large ones: only shown
        return None
    return TARGETS.get(backend, TARGET) if case.startswith((STEP, RESNET)) else MICROSECONDS


@pytest.mark.simulated
def test_simulated_gpu(benchmark: Any, session: Session, cpus: dict[str, CPU]) -> None:
    """Every framework that simulates GPUs by hooks."""
    if session.backend not in WORK:
        pytest.skip("a simulated GPU of NumPy is a label")
    _measure(benchmark, session, cpus, "")


@pytest.mark.simulated
def test_native_names(benchmark: Any, session: Session, cpus: dict[str, CPU]) -> None:
    """PyTorch's own names for cards replace properties of tensors, which operators do not read."""
    if session.backend != "torch":
        pytest.skip("measured on PyTorch")
    ds.simulate(2, native_names=True)
    try:
        _measure(benchmark, session, cpus, ", with native names")
    finally:
        ds.simulate(2)
