"""The cost that `import devshim` adds to a Python that has just started, and to one that already has its framework.

It is measured in processor time: an import computes, and other work of the machine must not count.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.paired import ratios, spread
from benchmarks.record import Row
from benchmarks.session import Session

BARE, AFTER = 3.0, 5.0
"""Milliseconds that the import may take."""
COMMAND_MS = 150.0
"""Milliseconds that a command itself may take."""

FIRST = 30.0
"""Milliseconds that the first call may take, with the import."""

AFTERWARDS = Path(__file__).with_name("afterwards.py")


def environment() -> dict[str, str]:
    """Return the environment variables of a child that may write bytecode files, as every installation does."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def start(code: str) -> float:
    """Return the processor time in seconds that an interpreter takes to run a line."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-P", "-c", code], check=True, env=environment())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_import_on_bare_python(benchmark: Any, session: Session) -> None:
    """Compared with an interpreter that does nothing.

    Pytest-benchmark's own number includes the start and end of both.
    """
    start("import devshim")
    times: dict[str, list[float]] = {"pass": [], "import devshim": []}
    turns = min(session.rounds, 21)
    benchmark.pedantic(lambda: [each.append(start(code)) for code, each in times.items()], rounds=turns)
    added = spread([(b - a) * 1e3 for a, b in zip(*times.values(), strict=True)])
    session.add(Row("import", "import on bare Python", "import devshim", target=BARE, unit="ms"), added, rounds=turns)


COMMANDS = {
    "help of the command": ["--help"],
    "list of devices": ["devices"],
    "diagnosis": ["doctor"],
    "words after the Tab key": ["--complete", "devices"],
}
"""Command lines, each without the processes that import frameworks."""
COMMAND = """
import resource, sys
sys.argv[1:] = {words!r}
if {run}:
    from devshim.cli import main
    try:
        main()
    except SystemExit:
        pass
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime, file=sys.stderr)
"""


def own_seconds(words: list[str], run: bool) -> float:
    """Return the processor time of a command's own process, or of the same program that runs no command."""
    command = [sys.executable, "-P", "-c", COMMAND.format(words=words, run=run)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment())
    return float(done.stderr.splitlines()[-1])


@pytest.mark.parametrize("case", COMMANDS)
def test_command(benchmark: Any, session: Session, case: str) -> None:
    """The processes of the frameworks do not count: a framework's import takes as long as it takes."""
    words = COMMANDS[case]
    own_seconds(words, run=True)
    times: dict[bool, list[float]] = {False: [], True: []}
    turns = min(session.rounds, 11)
    benchmark.pedantic(lambda: [each.append(own_seconds(words, run)) for run, each in times.items()], rounds=turns)
    added = spread([(b - a) * 1e3 for a, b in zip(times[False], times[True], strict=True)])
    statement = " ".join(("devshim", *words))
    session.add(Row("import", case, statement, target=COMMAND_MS, unit="ms"), added, rounds=turns)


def test_first_call(benchmark: Any, session: Session) -> None:
    """The import of devshim, the choice of the framework, and the first tensor, after the framework's own first one."""
    if session.backend == "mxnet":
        pytest.skip("MXNet itself does not import on this NumPy, but for devshim")
    command = [sys.executable, "-m", "benchmarks.first_call", session.record.environment]
    root = Path(__file__).resolve().parents[1]
    run = lambda: float(subprocess.check_output(command, env=environment(), cwd=root, text=True))  # noqa: E731
    run()
    times: list[float] = []
    turns = min(session.rounds, 11)
    benchmark.pedantic(lambda: times.append(run() * 1e3), rounds=turns)
    row = Row("import", "first call after the framework's", "ds.use(name); ds.ones(1)", target=FIRST, unit="ms")
    session.add(row, spread(times), rounds=turns)


def test_import_after_the_framework(session: Session, tmp_path: Path) -> None:
    """In a process that already has the framework, compared with other libraries."""
    if session.backend == "mxnet":
        pytest.skip("MXNet itself does not import on this NumPy, but for devshim")
    peers = {peer.module: peer.name for peer in session.peers}
    turns = min(session.rounds, 21)
    command = [sys.executable, "-P", str(AFTERWARDS), session.backend, str(turns), *peers]
    output = subprocess.check_output(command, env=environment(), cwd=tmp_path, text=True)
    found = json.loads(output.splitlines()[-1])
    case = f"import after {session.backend}"
    row = Row("import", case, "import devshim", target=AFTER, unit="ms")
    session.add(row, spread([each * 1e3 for each in found["devshim"]]), rounds=turns)
    for module, pairs in found["pairs"].items():
        ours, theirs = zip(*pairs, strict=True)
        took = f"{spread(theirs).median * 1e3:.3g} ms"
        row = Row(
            "import", case, "import devshim", f"{peers[module]}: import {module}", target=1.0, peer=True, note=took
        )
        session.add(row, ratios(ours, theirs), rounds=len(ours))
