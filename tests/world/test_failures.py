"""Tests of `ds.launch` with real processes: every way in which a rank of three can fail, and what is left of it.

The collectives here are made up: a rank says that it waits in one, and sleeps. `test_failure_matrix.py` has real ones.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from failing_ranks import LATEST, busy
from one_host import host as host

import devshim as ds

TIMEOUT = 3.0
LINES = Path(__file__).read_text().splitlines()
SUM = "all_reduce, sum of float32 (10,)"


RANKS = 3
PAUSES = {"kill": 1.2, "stop": 0.7}
"""Seconds before a rank fails, in which its agent learns at which line it is."""


def fail(how: str, folder: str) -> None:
    """Fail in the way that is asked for, and note when."""
    Path(folder, "failed").touch()
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "segfault":
        ctypes.string_at(0)
    if how == "exit":
        os._exit(3)
    if how == "quit":
        os._exit(0)
    if how == "leave":
        raise SystemExit("no data")  # without a traceback
    if how == "interrupt":
        raise KeyboardInterrupt
    if how == "exception":
        msg = "a bad batch"
        raise ValueError(msg)
    if how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if how == "sleep":
        time.sleep(100)


def job(how: str, folder: str) -> tuple[int, int, str]:
    """Come to a collective on two ranks of three; the third one fails on request."""
    from devshim.world import heartbeat

    class Steps:
        number, doing = 4, None

    rank = int(os.environ["RANK"])
    Path(folder, f"{rank}-{os.getpid()}").touch()
    heartbeat.begin(Steps)
    until = time.monotonic() + 60
    while len(list(Path(folder).glob("[0-9]*-*"))) < RANKS and time.monotonic() < until:
        time.sleep(0.02)  # a rank that starts late is not one of the failures below
    if not how:
        return rank, os.nice(0), os.environ["DEVSHIM_SIMULATE_GPUS"]
    if rank == RANKS - 1:
        time.sleep(PAUSES.get(how, 0))
        fail(how, folder)
        if how == "return":
            return rank, 0, ""
        if how == "result":
            return (letter for letter in "")  # type: ignore[return-value]  # which cannot be pickled
    Steps.number = 5
    Steps.doing = type("Step", (), {"number": 5, "what": SUM, "began": time.monotonic()})  # type: ignore[assignment]
    time.sleep(100)
    return rank, 0, ""


def left(folder: Path) -> list[int]:
    """Return the ranks' processes that still exist."""
    processes = [int(path.name.partition("-")[2]) for path in folder.glob("[0-9]*-*")]
    return [process for process in processes if Path(f"/proc/{process}").exists()]


@pytest.mark.usefixtures("host")
def test_results_come_in_the_order_of_the_ranks(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    priority = os.nice(0)  # which a rank has as well, although Ray lowers that of its own processes
    expected = [(rank, priority, "2") for rank in range(3)]
    assert ds.launch(job, "", str(tmp_path), ranks_per_host=3, simulate=2) == expected
    assert left(tmp_path) == []


CAUSES = {
    "kill": (ds.RankFailedError, "was killed by SIGKILL, and was last at test_failures.py:"),
    "segfault": (ds.RankFailedError, "was killed by SIGSEGV, at test_failures.py:"),
    "exit": (ds.RankFailedError, "ended with exit status 3"),
    "leave": (
        ds.RankFailedError,
        "ended with exit status 1, at test_failures.py:{leave} in fail; the last line of its",
    ),
    "interrupt": (ds.RankFailedError, "was killed by SIGINT: KeyboardInterrupt, at test_failures.py:"),
    "result": (
        ds.RankFailedError,
        "cannot be sent to the caller of ds.launch: {reason}, at test_failures.py:{job} in job",
    ),
    "exception": (ds.RankFailedError, "ended with exit status 1: ValueError: a bad batch, at test_failures.py:"),
    "stop": (ds.RankLateError, "does not answer"),
    "sleep": (ds.RankLateError, "has not made this call, and is at test_failures.py:"),
    "return": (ds.RankLateError, "rank 2 on host0 has returned; rank 0 on host0 waits at test_failures.py:"),
    "quit": (ds.RankLateError, "rank 2 on host0 has ended with exit status 0; rank 0 on host0 waits at"),
}


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("how", CAUSES)
def test_the_first_cause_is_named_in_time(how: str, tmp_path: Path) -> None:
    kind, words = CAUSES[how]
    leave = next(number for number, line in enumerate(LINES, 1) if "raise SystemExit(" in line)
    words = words.format(leave=leave, job=job.__code__.co_firstlineno, reason="cannot pickle 'generator' object")
    timeout = TIMEOUT * busy()
    with pytest.raises(kind) as caught:
        ds.launch(job, how, str(tmp_path), ranks_per_host=3, timeout=timeout, simulate=1)
    assert time.time() - (tmp_path / "failed").stat().st_mtime < timeout + LATEST * busy()
    assert words in caught.value.problem
    assert "rank 2 on host0" in caught.value.problem
    error: Any = caught.value
    if kind is ds.RankFailedError:
        assert error.rank == 2
        assert error.host == "host0"
    else:
        assert (error.waiting, error.late) == ((0, 1), (2,))
        assert SUM in error.problem
    assert left(tmp_path) == []


def leaving() -> int:
    """End well on rank 0, without a result."""
    if os.environ["RANK"] == "0":
        sys.exit(0)
    return 7


@pytest.mark.usefixtures("host")
def test_a_rank_that_ends_without_a_result_has_none() -> None:
    assert ds.launch(leaving, ranks_per_host=2) == [None, 7]


def flaky(folder: str) -> str:
    """Fail at the first start."""
    attempt = os.environ["DEVSHIM_ATTEMPT"]
    Path(folder, f"{attempt}-{os.getpid()}").touch()
    if attempt == "0":
        os._exit(3)
    return attempt


@pytest.mark.usefixtures("host")
def test_a_job_starts_again(tmp_path: Path) -> None:
    assert ds.launch(flaky, str(tmp_path), ranks_per_host=2, retries=1) == ["1", "1"]
    assert left(tmp_path) == []


def test_nothing_is_left_if_the_caller_is_killed(tmp_path: Path) -> None:
    (tmp_path / "ranks").mkdir()
    code = f"""
        import os, sys, time
        import devshim as ds
        def job():
            open({str(tmp_path / "ranks")!r} + f"/{{os.environ['RANK']}}-{{os.getpid()}}", "w").close()
            time.sleep(100)
        ds.launch(job, ranks_per_host=2)
    """
    script = tmp_path / "caller.py"
    script.write_text("\n".join(line[8:] for line in code.splitlines()))
    caller = subprocess.Popen([sys.executable, str(script)])
    until = time.monotonic() + 60
    while len(list((tmp_path / "ranks").iterdir())) < 2 and time.monotonic() < until:
        time.sleep(0.1)
    assert len(left(tmp_path / "ranks")) == 2
    caller.kill()
    caller.wait()
    until = time.monotonic() + 15
    while left(tmp_path / "ranks") and time.monotonic() < until:
        time.sleep(0.1)
    assert left(tmp_path / "ranks") == []


@pytest.mark.usefixtures("host")
def test_the_command_says_what_happened(tmp_path: Path) -> None:
    """The names of the program and its arguments are not text in the locale, and Ray sends both."""
    script = tmp_path / "prög" / "train.py"
    script.parent.mkdir()
    script.write_text(
        "import devshim as ds, os, sys\nds.world().barrier(); print('rank', os.environ['RANK'])\n"
        "if sys.argv[2:] == ['bad']:\n    int('x')\n"
        "def leave():\n    sys.exit('no data')\nif sys.argv[2:] == ['leave']:\n    leave()\n"
    )
    command = [sys.executable, "-m", "devshim", "launch", "--ranks", "2", "--simulate", "1", str(script)]

    def run(*words: str | bytes) -> subprocess.CompletedProcess[str]:
        variables = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0"}
        words = (b"\xff", *words)
        return subprocess.run(
            [*command, *words], cwd=script.parent, env=variables, capture_output=True, text=True, timeout=90
        )

    with ThreadPoolExecutor(3) as pool:
        good, bad, left = pool.map(lambda words: run(*words), ([], ["bad"], ["leave"]))
    assert good.returncode == 0, good.stderr
    assert "2 ranks ended with exit status 0" in good.stdout.splitlines()[-1]
    assert sorted(line.rpartition("] ")[2] for line in good.stdout.splitlines() if "] rank" in line) == [
        "rank 0",
        "rank 1",
    ]
    assert bad.returncode == 1
    assert "ended with exit status 1: ValueError" in bad.stdout.splitlines()[-1]
    assert "train.py:4 in <module>" in bad.stdout.splitlines()[-1]
    said = "ended with exit status 1, at train.py:6 in leave; the last line of its output is: no data."
    assert said in left.stdout.splitlines()[-1]
