"""Programs that run in their own process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run_program(program: str, folder: Path | None = None, *options: str, **environment: str) -> str:
    """Run a Python program in a new process, and return what it prints; fail with its errors if it fails.

    Args:
        program: The text of the program.
        folder: The working directory; by default this process's.
        options: Options of Python, such as ``"-W", "error"``.
        environment: Environment variables to add.
    """
    path = os.pathsep.join(part for part in sys.path if part)
    done = subprocess.run(
        [sys.executable, *options, "-c", program],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, **environment},
    )
    assert done.returncode == 0, f"{program}\n{done.stderr[-1500:]}"
    return done.stdout
