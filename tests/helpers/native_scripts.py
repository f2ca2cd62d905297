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

    The program ``no_gpus.py`` runs with ``CUDA_VISIBLE_DEVICES=-1``, which hides both.

    Args:
        script: The program.
        options: More options of ``devshim run``.
        printed: Changes the expected text, for another version of the framework.
    """
    words = ["-m", "devshim", "run", "--gpus", "2", *options, str(script)]
    hiding = {"CUDA_VISIBLE_DEVICES": "-1"} if script.stem == "no_gpus" else {}
    done = _run_python(*words, timeout=600, PYTHONWARNINGS="ignore", **hiding)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == printed(script.with_suffix(".txt").read_text())


def check_statements(framework: str) -> None:
    """Run native statements on a simulated GPU, and compare what they give with the recording of a real card."""
    done = _run_python(str(FOLDER / "statements"), framework, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]


def check_attributes(framework: str) -> None:
    """Switch native names on and off in a new process, and compare every attribute of a framework."""
    assert _count_attributes("native_attributes.py", framework) > 1000


def check_traces(*names: str) -> None:
    """Simulate GPUs of PyTorch in a new process, and compare everything that it has before and afterwards."""
    assert _count_attributes("torch_traces.py", *names) > 50_000


def _count_attributes(program: str, *words: str) -> int:
    """Run a program of this folder that compares attributes, and return the number that it prints."""
    done = _run_python(str(Path(__file__).with_name(program)), *words, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return int(done.stdout.split()[-2])


def _run_python(*words: str, timeout: int, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python without this process's variables of devshim."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DEVSHIM_")}
    command = [sys.executable, "-W", "ignore", *words]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, check=False, env={**environment, **variables}
    )
