"""Run a program that is written for real GPUs by ``devshim run``, and compare what it prints."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

__all__ = ["check_attributes", "check_statements", "check_traces", "run", "scripts"]

FOLDER = Path(__file__).parents[1] / "native"


def scripts(framework: str) -> list[Path]:
    """Return the programs for a framework; each has the text that it prints on real GPUs beside it."""
    return sorted((FOLDER / framework).glob("*.py"))


def run(script: Path, *options: str, printed: Callable[[str], str] = str) -> None:
    """Run a program on two simulated GPUs, and compare its output with the file ``.txt`` beside it.

    Args:
        script: The program.
        options: More options of ``devshim run``.
        printed: Changes the expected text, for another version of the framework.
    """
    command = [sys.executable, "-W", "ignore", "-m", "devshim", "run", "--gpus", "2", *options, str(script)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DEVSHIM_")}
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**environment, "PYTHONWARNINGS": "ignore"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == printed(script.with_suffix(".txt").read_text())


def check_statements(framework: str) -> None:
    """Run native statements on a simulated GPU, and compare what they give with the recording of a real card."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DEVSHIM_")}
    command = [sys.executable, "-W", "ignore", str(FOLDER / "statements"), framework]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]


def check_attributes(framework: str) -> None:
    """Switch native names on and off in its own process, and compare every attribute of a framework."""
    program = Path(__file__).with_name("native_attributes.py")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DEVSHIM_")}
    command = [sys.executable, "-W", "ignore", str(program), framework]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout.split()[-2]) > 1000


def check_traces(*names: str) -> None:
    """Simulate GPUs of PyTorch in its own process, and compare everything that it has before and afterwards."""
    program = Path(__file__).with_name("torch_traces.py")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DEVSHIM_")}
    command = [sys.executable, "-W", "ignore", str(program), *names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout.split()[-2]) > 50_000
