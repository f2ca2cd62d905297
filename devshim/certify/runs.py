"""Run one framework's claims in worker processes; a worker that dies loses no result."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from threading import Event, Timer
from typing import IO, TYPE_CHECKING, Any

from devshim.certify.claims import FAIL, Result
from devshim.certify.process_end import describe_end, last_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devshim.certify.claims import Setting

__all__ = ["CARDS", "results"]

PATIENCE = 240
"""The seconds that a claim, or a framework's import, may take."""

CARDS = 2
"""The number of GPUs that `devshim certify --simulate` simulates."""

_SIMULATED = {"DEVSHIM_SIMULATE_GPUS": str(CARDS), "DEVSHIM_SIMULATE_MEMORY": "256MiB", "CUDA_VISIBLE_DEVICES": ""}
_WORKER = (sys.executable, "-m", "devshim.certify._worker")


@dataclass
class _Messages:
    """The messages of one worker: the claim that it runs, and whether it has finished."""

    running: dict[str, Any] | None = None
    finished: bool = False


def environment(simulated: bool) -> dict[str, str]:
    """Return the environment of the workers; GPUs are simulated there only if the call asks for it."""
    found = {name: value for name, value in os.environ.items() if not name.startswith("DEVSHIM_")}
    found.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow writes a page of log lines at the start
    return {**found, **_SIMULATED} if simulated else found


def results(at: Setting) -> Iterator[Result]:
    """Yield the result of each claim as it ends."""
    first_claim = 0
    while True:
        messages, failure = _Messages(), ""
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
            command = [*_WORKER, at.to_json(), str(first_claim)]
            late = Event()
            with subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment(at.simulated)
            ) as worker:
                try:
                    yield from _read(worker, messages, late)
                finally:
                    worker.kill()
                    code = worker.wait()
            failure = _failure(code, errors, late.is_set())
        if messages.finished and not code:
            return
        if messages.running is None:
            says = "The process ends normally." if messages.finished else "The framework starts."
            yield Result("process", says, FAIL, failure)
            return
        yield Result(messages.running["name"], messages.running["says"], FAIL, failure)
        first_claim = messages.running["begins"] + 1


def _read(worker: subprocess.Popen[str], messages: _Messages, late: Event) -> Iterator[Result]:
    assert worker.stdout is not None
    timer = _start_timer(worker, late)
    for line in worker.stdout:
        timer.cancel()
        message = json.loads(line)
        if "result" in message:
            messages.running = None
            yield Result(**message["result"])
        elif "finished" in message:
            messages.finished = True
        else:
            messages.running = message
        timer = _start_timer(worker, late)
    worker.wait()
    timer.cancel()


def _start_timer(worker: subprocess.Popen[str], late: Event) -> Timer:
    """Start a timer that kills a worker after too long a silence."""

    def ends() -> None:
        late.set()
        worker.kill()

    timer = Timer(PATIENCE, ends)
    timer.daemon = True
    timer.start()
    return timer


def _failure(code: int, errors: IO[str], is_late: bool) -> str:
    errors.seek(0)
    if is_late:
        return (
            f"the process hangs: it did not answer within {PATIENCE} seconds, and was ended{last_line(errors.read())}"
        )
    return f"the process {describe_end(code, errors.read())}"
