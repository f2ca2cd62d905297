"""Tests of `devshim launch` with a difficult program: much output, binary output, no end of a line, a closed pipe."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from listening import descendants

PROGRAMS = {
    "much": "import os\nfor _ in range(2000): print('x' * 100 + os.environ['RANK'] * 50_000)",
    "binary": "import os\nos.write(1, bytes(range(256)) * 100)",
    "endless": "import sys\nsys.stdout.write('y' * 300_000)",
    "bar": "import time\nfor i in range(5): print(f'{i}/5', end='\\r', flush=True); time.sleep(0.01)",
    "held": "import os, time\nif os.fork() == 0: time.sleep(60)\nos.write(1, b'result: 42')",
    "daemon": "import os, time\nif os.fork() == 0: os.setsid(); time.sleep(10)\nos.write(1, b'result: 42')",
}


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Let a job have its temporary folders in one that must be empty at the end; Ray needs a short path."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="d-") as name:
        monkeypatch.setenv("TMPDIR", name)
        yield Path(name)
        until = time.monotonic() + 10
        while list(Path(name).glob("devshim-*")) and time.monotonic() < until:
            time.sleep(0.1)
        assert list(Path(name).glob("devshim-*")) == []


def command(program: str, ranks: int = 2) -> list[str]:
    return [sys.executable, "-m", "devshim", "launch", "--ranks", str(ranks), "-c", program]


@pytest.mark.parametrize("kinds", [("much", "much"), ("binary", "endless", "bar", "held", "daemon")], ids=" ".join)
def test_whatever_a_program_prints(kinds: tuple[str, ...]) -> None:
    """Each rank prints in its own way."""
    program = f"import os\nexec({[PROGRAMS[kind] for kind in kinds]}[int(os.environ['RANK'])])"
    done = subprocess.run(command(program, len(kinds)), capture_output=True, timeout=300, check=False)
    text = done.stdout.decode()
    assert done.returncode == 0, done.stderr
    lines = text.split("\n")
    assert f"{len(kinds)} ranks ended with exit status 0" in lines[-2]
    for rank, kind in enumerate(kinds):
        ours = [line.partition("] ")[2] for line in lines if line.startswith(f"[{rank} ")]
        if kind == "much":  # 100 MB from each rank, of which no part is lost
            assert sum(map(len, ours)) == 2000 * 50_100
            assert max(map(len, ours)) <= 8192
        elif kind == "endless":
            assert sum(map(len, ours)) == 300_000
        elif kind == "binary":
            assert sum(len(line) for line in ours) > 100 * 200
        elif kind == "bar":
            assert ours == ["4/5"]
        else:  # the process that the rank has started holds the pipe open
            assert ours == ["result: 42"]


WAITING = "import os, time\nprint('started', os.getpid(), flush=True)\ntime.sleep(100)"


def default_signals() -> None:
    """Undo that signals are ignored, as they are for tests that run under ``nohup`` or in the background."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_signal_ends_a_job_with_all_of_its_processes(number: signal.Signals) -> None:
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command(WAITING), preexec_fn=default_signals, **pipes) as launch:
        assert launch.stdout is not None
        seen: list[str] = []
        while sum("started" in line and line.startswith("[") for line in seen) < 2:
            seen.append(launch.stdout.readline())
        started = descendants(launch.pid) - {launch.pid}
        assert len(started) > 5
        launch.send_signal(number)
        rest = launch.stdout.read()
        status = launch.wait(60)
    assert status == (-9 if number == signal.SIGKILL else 128 + number)
    if number != signal.SIGKILL:
        assert "All ranks have been ended." in rest.splitlines()[-1]
    until = time.monotonic() + 20
    while (left := [each for each in started if Path(f"/proc/{each}").exists()]) and time.monotonic() < until:
        time.sleep(0.1)
    assert left == []


def test_a_closed_pipe_ends_a_job() -> None:
    with subprocess.Popen(command("while True: print('x')"), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as launch:
        assert launch.stdout is not None
        launch.stdout.readline()
        launch.stdout.close()
        assert launch.wait(60) == 128 + signal.SIGPIPE


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_below_the_output_is_an_error() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command("print('x')"), stdout=full, stderr=subprocess.PIPE, text=True, timeout=90, check=False
        )
    assert done.returncode == 1
    assert "the output cannot be written: No space left on device" in " ".join(done.stderr.split())
