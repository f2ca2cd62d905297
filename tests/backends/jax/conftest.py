"""Fixtures of the tests on JAX. Where JAX is not installed, no test of this folder is collected."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec

import pytest

collect_ignore_glob = [] if find_spec("jax") is not None else ["test_*.py"]


@pytest.fixture
def in_fresh_process() -> Callable[..., str]:
    """Return a function that runs code in a Python that has not started JAX, and returns what the code prints."""

    def run(code: str, **environment: str) -> str:
        cleared = {k: v for k, v in os.environ.items() if not k.startswith(("DEVSHIM_", "XLA_", "JAX_"))}
        done = subprocess.run(
            [sys.executable, "-c", "import devshim as ds; ds.use('jax'); import jax, jax.numpy as jnp\n" + code],
            env={**cleared, **environment},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run
