"""The runner of all conversions in two processes, with and without simulated GPUs; it continues after a crash."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Timer

from cells import BACKENDS, Cell, Task, tasks

import devshim as ds

WORKER = Path(__file__).with_name("worker.py")
LIMIT = 300.0
"""Seconds for the cells of one pair, and for the start."""

Results = dict[Task, list[tuple[Cell, str, str]]]
"""For each pair and cell: the outcome, and why."""


class Worker:
    """A process that converts; a new one replaces it if a cell ends it."""

    def __init__(self, simulated: bool, script: Path = WORKER) -> None:
        self.command = [sys.executable, str(script), "simulated" if simulated else "plain"]
        self.process: subprocess.Popen[str] | None = None

    def results(self, task: Task) -> list[tuple[Cell, str, str]]:
        """Return the outcome of every cell of a pair."""
        cells, found = list(task.cells()), list[tuple[Cell, str, str]]()
        while len(found) < len(cells):
            process = self._asked(task, len(found))
            watch = Timer(LIMIT, process.kill)
            watch.start()
            found += self._answers(process, cells[len(found) :])
            watch.cancel()
            if len(found) < len(cells):
                self.stop()
                cause = f"it ended the process, with status {process.returncode}, or took {LIMIT:.0f} seconds"
                found.append((cells[len(found)], "wrong", cause))
        return found

    def stop(self) -> None:
        """End the process by closing its input."""
        if self.process is not None:
            self.process.communicate()
            self.process = None

    def _asked(self, task: Task, begin: int) -> subprocess.Popen[str]:
        process = self.process = self.process or self._started()
        assert process.stdin is not None
        process.stdin.write(f"{task.source} {task.target} {begin}\n")
        process.stdin.flush()
        return process

    def _started(self) -> subprocess.Popen[str]:
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            process.communicate()
            raise SystemExit("nothing can be converted: see the traceback above")
        return process

    @staticmethod
    def _answers(process: subprocess.Popen[str], cells: list[Cell]) -> list[tuple[Cell, str, str]]:
        assert process.stdout is not None
        found = []
        for cell in cells:
            line = process.stdout.readline()
            if not line.endswith("\n"):
                break
            outcome, why = json.loads(line)
            found.append((cell, outcome, why))
        return found


def sweep(wanted: Callable[[Task], bool] = lambda task: True) -> Results:
    """Run all conversions, and return all outcomes."""
    with ThreadPoolExecutor(2) as pool:
        parts = pool.map(lambda simulated: _work(simulated, wanted), (False, True))
        return {task: cells for part in parts for task, cells in part.items()}


def _work(simulated: bool, wanted: Callable[[Task], bool]) -> Results:
    worker = Worker(simulated)
    installed = [name for name in BACKENDS if name in ds.backends()]
    try:
        return {task: worker.results(task) for task in tasks(simulated, installed) if wanted(task)}
    finally:
        worker.stop()
