"""Fixtures of the tests of PaddlePaddle."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def run_python() -> Callable[..., str]:
    """Return a function that runs Python in its own process, which may crash, and returns its output.

    The process sees no real GPU and no setting of devshim, except those that are passed as keywords.
    """

    def run(*arguments: object, **environ: str) -> str:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("DEVSHIM_")}
        process = subprocess.run(
            [sys.executable, *map(str, arguments)],
            env={**inherited, "CUDA_VISIBLE_DEVICES": "", **environ},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert process.returncode == 0, process.stderr[-3000:]
        return process.stdout

    return run
