"""Fixtures of the tests of JAX."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest


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
