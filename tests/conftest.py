"""Every test may use the conformance kit's marks and options."""

from __future__ import annotations

import gc
import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

# tests/package builds devshim before it is installed; tests/prose and tests/repository run without NumPy.
pytest_plugins = ["devshim.testing.plugin"] if find_spec("devshim") and find_spec("numpy") else []

MANY_MODULES = 100
_modules = [0]
"""The number of imported modules when their objects were last left out of garbage collections."""


def pytest_configure(config: pytest.Config) -> None:
    """Hide the real GPUs of this machine, unless the tests that need one are selected: all others simulate GPUs."""
    selects_gpu = re.search(r"(?<!not )\bgpu\b", config.getoption("markexpr") or "")
    if Path("/dev/nvidiactl").exists() and not selects_gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


def pytest_collection_finish() -> None:
    """Leave what the collection made out of every later garbage collection: tests ask for hundreds of these."""
    _keep_out_of_collections()


def pytest_runtest_setup() -> None:
    """Do so again after a test that has imported a framework or its compiler."""
    if len(sys.modules) > _modules[0] + MANY_MODULES:
        _keep_out_of_collections()


def _keep_out_of_collections() -> None:
    gc.collect()
    gc.freeze()
    _modules[0] = len(sys.modules)
