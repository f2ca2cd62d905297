"""Fixtures for the CuPy adapter on a stub of CuPy, which uses NumPy: ``STUB_CUPY_GPUS=2 pytest tests/stub_cupy``.

It runs in its own process, because ``import cupy`` finds the stub there. It shows what the adapter asks of CuPy, on
which GPU, and in which order. It does not show what only CuPy and a GPU can show.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

IN_USE = bool(os.environ.get("STUB_CUPY_GPUS"))
"""True in a process for these tests; other processes collect nothing here, and do not find the stub."""
collect_ignore_glob = [] if IN_USE else ["test_*.py", "site/*"]
if IN_USE:
    sys.path.insert(0, str(Path(__file__).parent / "site"))
    import stub_driver

    stub_driver.install()


@pytest.fixture(autouse=True)
def _fresh(request: pytest.FixtureRequest) -> Iterator[None]:
    """Make CuPy the current framework, GPU 0 current, only the default stream used, and no work asynchronous."""
    from cupy import _machine

    import devshim as ds

    with ds.using("cupy"):
        _machine.LATE[0] = False
        yield
        _machine.LATE[0] = False
    _machine.limits.clear()
    _machine.set_current(0)
