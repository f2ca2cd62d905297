"""The cost of simulation: the same work on a simulated GPU and on the CPU, which computes both.

The CPU's turns are in a process of their own, without simulated GPUs: see `benchmarks.work`. Only one process works at
a time.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from timeit import Timer
from typing import Any

import pytest

import devshim as ds
from benchmarks.operators import COMPOSED, statements
from benchmarks.paired import batch_of, spread
from benchmarks.record import Row
from benchmarks.session import Session
from benchmarks.work import RESNET, STEP, WORK

TARGETS = {"torch": None, "paddle": 1.3}
"""The largest allowed ratio of a step, where it is not the usual one."""
TARGET = 1.1
MICROSECONDS = 10
"""The most that an operator of PyTorch may take longer."""


class CPU:
    """The process that does the same work on the CPU."""

    def __init__(self, environment: str) -> None:
        command = [sys.executable, "-m", "benchmarks.work", environment]
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
def cpu(session: Session) -> Iterator[CPU]:
    """Return the process for the CPU's turns."""
    found = CPU(session.record.environment)
    yield found
    found.end()


def _measure(benchmark: Any, session: Session, cpu: CPU, names: str) -> None:
    """Time each case in turns, A B B A, and write its row."""
    work, composed = WORK[session.backend](ds.gpu(0).native()), set(statements(COMPOSED))
    for case, call in work.items():
        timer = Timer(call)
        number = batch_of(timer)
        cpu.seconds(case, number)
        ours, others = [], []
        for _ in range(session.rounds // 2):
            ours.append(timer.timeit(number) / number)
            others += [cpu.seconds(case, number), cpu.seconds(case, number)]
            ours.append(timer.timeit(number) / number)
        seconds, rounds = statistics.median(ours), len(ours)
        pairs = list(zip(ours, others, strict=True))
        is_step = case.startswith((STEP, RESNET))
        values = [a / b if is_step else (a - b) * 1e6 for a, b in pairs]
        target = TARGETS.get(session.backend, TARGET) if is_step else None if case in composed else MICROSECONDS
        unit = "" if is_step else "us more"
        row = Row("simulation", case + names, "on a simulated GPU", "on the CPU", target=target, unit=unit)
        session.add(row, spread(values), seconds, rounds)
    benchmark.pedantic(call, rounds=1)


@pytest.mark.simulated
def test_simulated_gpu(benchmark: Any, session: Session, cpu: CPU) -> None:
    """Every framework that simulates GPUs by hooks of its own."""
    if session.backend not in WORK:
        pytest.skip("a simulated GPU of NumPy is a label")
    _measure(benchmark, session, cpu, "")


@pytest.mark.simulated
def test_native_names(benchmark: Any, session: Session, cpu: CPU) -> None:
    """PyTorch's own names for cards replace properties of tensors, which operators do not read."""
    if session.backend != "torch":
        pytest.skip("measured on PyTorch")
    ds.simulate(2, native_names=True)
    try:
        _measure(benchmark, session, cpu, ", with native names")
    finally:
        ds.simulate(2)
