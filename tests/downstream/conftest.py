"""Programs of other projects run on a simulated GPU: `nox -s downstream` installs those projects."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import devshim as ds


@pytest.fixture(autouse=True)
def gpu() -> Iterator[ds.Device]:
    """Return the second of two simulated GPUs of PyTorch, which is not the default device."""
    ds.use("torch")
    ds.simulate(gpus=2)
    yield ds.gpu(1)
    ds.simulate(0)
