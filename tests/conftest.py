"""Every test may use the conformance kit's marks and options."""

from __future__ import annotations

import gc
import os
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

# tests/package builds devshim before it is installed; tests/prose and tests/repository run without NumPy.
pytest_plugins = ["devshim.testing.plugin"] if find_spec("devshim") and find_spec("numpy") else []


def pytest_configure(config: pytest.Config) -> None:
    """Hide the real GPUs of this machine, unless the tests that need one are selected: all others simulate GPUs."""
    selects_gpu = re.search(r"(?<!not )\bgpu\b", config.getoption("markexpr") or "")
    if Path("/dev/nvidiactl").exists() and not selects_gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


def pytest_collection_finish() -> None:
    """Leave what the collection made out of every later garbage collection: tests ask for hundreds of these."""
    gc.collect()
    gc.freeze()
