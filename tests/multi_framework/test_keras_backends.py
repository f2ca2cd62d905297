"""Tests of checkpoints of Keras models and optimizers that cross between Keras backends.

Keras has one backend per process, so each saves in its own process, and loads in another.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("keras_crossing.py")
BACKENDS = ("torch", "jax", "tensorflow")


def run(backend: str, what: str, *folders: Path) -> None:
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), what, *map(str, folders)],
        env={**os.environ, **quiet, "KERAS_BACKEND": backend, "DEVSHIM_SIMULATE_GPUS": "2"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.stdout.endswith("crossed\n"), done.stderr[-3000:]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return the folder in which each of the frameworks has saved the same models and optimizers."""
    folders = [tmp_path_factory.mktemp(backend) for backend in BACKENDS]
    for backend, folder in zip(BACKENDS, folders, strict=True):
        run(backend, "save", folder)
    return folders


@pytest.mark.parametrize("target", BACKENDS)
def test_models_and_optimizers_cross(saved: list[Path], target: str) -> None:
    run(target, "load", *saved)
