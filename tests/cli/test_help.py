"""Tests of help, version, and their cost."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import devshim as ds

if TYPE_CHECKING:
    from conftest import Invoke, Run

LOADED = """
import sys
from devshim.cli import main
sys.argv[1:] = {words!r}
try:
    main()
finally:
    roots = {{name.partition(".")[0] for name in sys.modules}}
    slow = {{"torch", "tensorflow", "mxnet", "paddle", "jax", "numpy", "rich"}}
    print("loaded:", *sorted(roots & slow), file=sys.stderr)
"""


@pytest.mark.parametrize(
    "words",
    [["--help"], ["tour", "--help"], ["doctor", "--help"], ["certify", "--help"], ["launch", "--help"], ["--version"]],
)
def test_help_imports_no_framework_and_not_rich(words: list[str]) -> None:
    program = LOADED.format(words=words)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0
    assert done.stdout
    assert done.stderr.strip() == "loaded:"


@pytest.mark.parametrize("words", [["devices", "--backend", "numpy"], ["devices", "--json"], ["doctor"]])
def test_a_list_in_a_pipe_imports_no_framework_and_not_rich(words: list[str]) -> None:
    """Each framework is asked in its own process, and rich draws only on a terminal."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED.format(words=words)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "NumPy" in done.stdout
    assert done.stderr.strip() == "loaded:"


def test_a_pipe_that_must_behave_like_a_terminal_has_colours(run: Run) -> None:
    done = run("devices", "--backend", "numpy", FORCE_COLOR="1")
    assert done.returncode == 0
    assert "\x1b[" in done.stdout


def test_help_is_plain_in_a_pipe(run: Run) -> None:
    done = run("--help")
    assert done.returncode == 0
    assert done.stdout.isascii()
    assert "\x1b" not in done.stdout
    assert all(command in done.stdout for command in ("tour", "devices", "doctor"))


COMMANDS = ["tour", "run", "compare", "devices", "smi", "doctor", "certify", "new-backend", "tabs", "tutorial"]
COMMANDS += ["launch", "cluster"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_names_no_types(run: Run, command: str) -> None:
    done = run(command, "--help")
    assert done.returncode == 0
    assert not re.search(r"<[a-z ]+(\[\w+\])?>", done.stdout), done.stdout


def test_version(invoke: Invoke) -> None:
    result = invoke("--version")
    assert (result.exit_code, result.stdout) == (0, f"devshim {ds.__version__}\n")


@pytest.mark.parametrize(
    "words",
    [["nonsense"], ["tour", "--gpus", "many"], ["tour", "--gpus", "65"], ["tour", "stray.json"]],
)
def test_wrong_usage_exits_with_2(invoke: Invoke, words: list[str]) -> None:
    assert invoke(*words).exit_code == 2
