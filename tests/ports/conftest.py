"""Other projects with the device code of devshim: `nox -s ports` installs them, with one framework each."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("JAX_ENABLE_X64", "1")  # both projects compute in float64

import devshim as ds

sys.path.insert(0, str(Path(__file__).parents[2]))  # for `examples.ports`

HERE = [name for name in ("numpy", "torch", "jax", "tensorflow") if importlib.util.find_spec(name)]
"""The frameworks that are installed, and that both projects know."""


@pytest.fixture(params=HERE)
def framework(request: pytest.FixtureRequest) -> Iterator[str]:
    """Use one framework with two simulated GPUs."""
    with ds.using(request.param), ds.simulate(gpus=2):
        if request.param == "tensorflow":
            from tensorflow.python.ops.numpy_ops import np_config

            np_config.enable_numpy_behavior()
        yield request.param
