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


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test on each framework that is installed and that the project supports: the keys of ``NATIVE``."""
    if "framework" in metafunc.fixturenames:
        here = [name for name in metafunc.module.NATIVE if importlib.util.find_spec(name)]
        metafunc.parametrize("framework", here, indirect=True)


@pytest.fixture
def framework(request: pytest.FixtureRequest) -> Iterator[str]:
    """Use one framework with two simulated GPUs."""
    with ds.using(request.param), ds.simulate(gpus=2):
        if "tensorflow" in sys.modules:  # POT warns without it, even if another framework computes
            from tensorflow.python.ops.numpy_ops import np_config

            np_config.enable_numpy_behavior()
        yield request.param
