"""Programs that run in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run_program(program: str, folder: Path, *options: str, **environment: str) -> None:
    """Run a Python program in a new process, and fail with its errors if it fails.

    Args:
        program: The text of the program.
        folder: The working directory.
        options: Options of Python, such as ``"-W", "error"``.
        environment: Environment variables to add.
    """
    path = os.pathsep.join(part for part in sys.path if part)
    done = subprocess.run(
        [sys.executable, *options, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, **environment},
    )
    assert done.returncode == 0, f"{program}\n{done.stderr[-1500:]}"
