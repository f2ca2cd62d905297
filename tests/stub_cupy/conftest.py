"""The adapter of CuPy on a stub of CuPy, which computes with NumPy: ``STUB_CUPY_GPUS=2 pytest tests/stub_cupy``.

In a process of its own, because the stub is what ``import cupy`` finds in it.  What it shows: what the adapter asks of
CuPy, on which GPU, in which order.  What only CuPy and a card can show it does not.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

IN_USE = bool(os.environ.get("STUB_CUPY_GPUS"))
"""True in a process that is for these tests; others collect nothing here, and find no stub."""
collect_ignore_glob = [] if IN_USE else ["test_*.py", "site/*"]
if IN_USE:
    sys.path.insert(0, str(Path(__file__).parent / "site"))
    import stub_driver

    stub_driver.install()


@pytest.fixture(autouse=True)
def _fresh(request: pytest.FixtureRequest) -> Iterator[None]:
    """CuPy is the current framework; GPU 0 is current, no stream but the default one, nothing is asked late."""
    from cupy import _machine

    import devshim as ds

    with ds.using("cupy"):
        _machine.LATE[0] = False
        yield
        _machine.LATE[0] = False
    _machine.limits.clear()
    _machine.set_current(0)
