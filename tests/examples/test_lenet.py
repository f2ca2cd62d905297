"""Tests of ``examples/lenet.py``: equal losses on every framework, in two ways on two GPUs, across a checkpoint."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import devshim as ds

PROGRAM = Path(__file__).parents[2] / "examples" / "lenet.py"
DIFFERENTIATING = sorted(ds.backends().keys() - {"numpy", "cupy"})
LOSSES = [
    *(2.4496660, 2.0729835, 2.2081931, 2.2462795, 1.9340667, 2.1310408, 1.7209107, 1.9552566, 1.6592242, 1.3646477),
    *(1.1275403, 1.0688055, 1.0386829, 0.8788404, 0.7393339, 0.6557713, 0.6430464, 0.5894227, 0.4963976, 0.4390441),
]
"""The losses of two epochs. Every framework must find them."""


def run(name: str, way: str, checkpoint: Path) -> tuple[list[float], float]:
    """Return the losses of one more epoch, and the accuracy after it."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), name, way, str(checkpoint)],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    *losses, (_, accuracy) = [line.split() for line in done.stdout.splitlines()]
    return [float(found) for _, _, found in losses], float(accuracy)


@pytest.mark.parametrize("name", DIFFERENTIATING)
def test_lenet_learns_the_same_on_every_framework(name: str, tmp_path: Path) -> None:
    """The second epoch is another run, in the other way, and on another framework if there is one here."""
    ways = "data", "model"
    following = DIFFERENTIATING[(DIFFERENTIATING.index(name) + 1) % len(DIFFERENTIATING)]
    first, _ = run(name, ways[0], tmp_path / "lenet.safetensors")
    second, accuracy = run(following, ways[1], tmp_path / "lenet.safetensors")
    assert np.allclose([*first, *second], LOSSES, rtol=1e-5, atol=0)
    assert accuracy > 0.95


def test_the_program_names_no_framework() -> None:
    code = PROGRAM.read_text(encoding="utf-8").split('"""', 2)[2].lower()
    assert not [name for name in ("torch", "tensor", "keras", "mxnet", "paddle", "jax") if name in code]
