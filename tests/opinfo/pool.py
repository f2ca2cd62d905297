"""The pool of processes that examine operators; a new process continues if an operator ends the one it ran in."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Timer
from typing import Any

WORKER = Path(__file__).with_name("worker.py")


class Worker:
    """A process that examines one operator after another.

    Attributes:
        names: All operators.
    """

    def __init__(self, max_samples: int, seconds: float, native_names: bool) -> None:
        self.options = [str(max_samples), *(["--native-names"] if native_names else [])]
        self.seconds = seconds
        self.start()

    def start(self) -> None:
        """Start the process, which first sends the names."""
        command = [sys.executable, str(WORKER), *self.options]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        names = self._read()
        if not names:
            raise SystemExit("no operator can be examined: see the traceback above")
        self.names: list[str] = json.loads(names)

    def examine(self, number: int) -> dict[str, Any]:
        """Return the report of one operator."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{number}\n")
        self.process.stdin.flush()
        timer = Timer(self.seconds, self.process.kill)
        timer.start()
        answer = self._read()
        timer.cancel()
        if answer:
            report: dict[str, Any] = json.loads(answer)
            return report
        cause = f"the process ended with status {self.process.wait()}, or it took {self.seconds:.0f} seconds"
        self.start()
        return {
            "operator": self.names[number],
            "samples": 0,
            "refused": 0,
            "not_on_cuda": 0,
            "passed": {},
            "inexact": 0,
            "causes": [cause],
        }

    def stop(self) -> None:
        """End the process by closing its input."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def _read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()


def sweep(
    processes: int, max_samples: int, seconds: float, only: list[str], native_names: bool = False
) -> list[dict[str, Any]]:
    """Examine operators in several processes, each taking the next one when it is done.

    Args:
        processes: The number of processes.
        max_samples: The number of samples of each operator; 0 for all.
        seconds: The time limit for one operator.
        only: Names; empty for all.
        native_names: True if the GPU is ``cuda:1``, PyTorch's name for a real one, and not ``sim:1``.

    Returns:
        The reports, in the order of the names.
    """
    with ThreadPoolExecutor(processes) as pool:
        workers = list(pool.map(lambda _: Worker(max_samples, seconds, native_names), range(processes)))
        names = workers[0].names
        if unknown := set(only) - set(names):
            raise SystemExit(f"no such operators: {', '.join(sorted(unknown))}")
        waiting: SimpleQueue[int] = SimpleQueue()
        for number, name in enumerate(names):
            if not only or name in only:
                waiting.put(number)
        reports = [report for part in pool.map(lambda worker: _work(worker, waiting), workers) for report in part]
    return sorted(reports, key=lambda report: names.index(report["operator"]))


def _work(worker: Worker, waiting: SimpleQueue[int]) -> list[dict[str, Any]]:
    reports = []
    try:
        while True:
            reports.append(worker.examine(waiting.get_nowait()))
    except Empty:
        return reports
    finally:
        worker.stop()
