"""The conformance kit on CuPy: arrays on its GPUs, and NumPy arrays in host memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import devshim as ds
from devshim.testing import Conformance


class TestCupy(Conformance):
    backend = "cupy"

    @pytest.fixture(autouse=True)
    def _current(self, request: pytest.FixtureRequest, _around: None) -> Iterator[None]:
        """Make the GPU of a guard test current: CuPy's operators take only arrays of the current GPU."""
        guards = any("guard" in mark.args for mark in request.node.iter_markers("feature"))
        if not guards or "other_device" not in request.fixturenames:
            yield
            return
        with ds.framework("cupy").cuda.Device(request.getfixturevalue("other_device").index):
            yield

    def alike(self, x: Any, y: Any) -> bool:
        """Return True if two arrays are of the same type; in host memory, CuPy uses NumPy arrays."""
        kinds = [np.ndarray if ds.device_of(each) is ds.cpu() else ds.framework("cupy").ndarray for each in (x, y)]
        return all(isinstance(each, kind) for each, kind in zip((x, y), kinds, strict=True))

    def mutate(self, x: Any) -> None:
        """Write on the array's GPU, which CuPy requires to be current."""
        ds.run(lambda x: x.__setitem__(..., 77), x)

    def global_state(self) -> object:
        import cupy

        used = cupy.cuda.runtime.getDevice() if ds.device_count() else None
        return used, np.geterr()
