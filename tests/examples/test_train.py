"""Tests of the training loop of ``examples/train.py``: the same losses on every framework and device."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import devshim as ds

PROGRAM = Path(__file__).parents[2] / "examples" / "train.py"
EXAMPLE: dict[str, Any] = runpy.run_path(str(PROGRAM))
DIFFERENTIATING = sorted(ds.backends().keys() - {"numpy", "cupy"})


def by_hand() -> list[float]:
    """Return the losses of the same loop on NumPy in float64, with gradients worked out by hand."""
    p = {name: value.astype("float64") for name, value in EXAMPLE["initial"]().items()}
    losses = []
    for batch in EXAMPLE["batches"]():
        hidden = batch["x"] @ p["w1"] + p["b1"]
        error = (hidden * hidden) @ p["w2"] + p["b2"] - batch["y"]
        losses.append(float((error**2).mean()))
        outer = 2 * error / len(error)
        inner = 2 * hidden * (outer @ p["w2"].T)
        grads = {
            "w1": batch["x"].T @ inner,
            "b1": inner.sum(0, keepdims=True),
            "w2": (hidden * hidden).T @ outer,
            "b2": outer.sum(0, keepdims=True),
        }
        p = EXAMPLE["update"](p, grads)
    return losses


@pytest.mark.parametrize("device", ["cpu", "gpu:1"])
@pytest.mark.parametrize("name", DIFFERENTIATING)
def test_the_losses_are_those_computed_by_hand(name: str, device: str) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), name, device],
        env={
            **os.environ,
            "CUDA_VISIBLE_DEVICES": "",
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "DEVSHIM_SIMULATE_GPUS": "2",
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = [float(line.split()[1]) for line in done.stdout.splitlines()]
    expected = by_hand()
    assert len(found) == len(expected) == 20
    assert np.allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert expected[-1] < expected[0] / 2, "the example does not learn"


def test_the_program_names_no_framework() -> None:
    names = [f'"{name}"' for name in ("torch", "tensorflow", "mxnet", "paddle", "jax")]
    assert not [name for name in names if name in PROGRAM.read_text(encoding="utf-8")]
