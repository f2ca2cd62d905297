"""The conformance kit on CuPy: its GPUs' arrays, and NumPy's in host memory."""

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
        """The GPU of a test of the guard is current: CuPy's operators take arrays of that one alone."""
        guards = any("guard" in mark.args for mark in request.node.iter_markers("feature"))
        if not guards or "other_device" not in request.fixturenames:
            yield
            return
        with ds.framework("cupy").cuda.Device(request.getfixturevalue("other_device").index):
            yield

    def alike(self, x: Any, y: Any) -> bool:
        """CuPy has no arrays in host memory; NumPy's are there in their place."""
        kinds = [np.ndarray if ds.device_of(each) is ds.cpu() else ds.framework("cupy").ndarray for each in (x, y)]
        return all(isinstance(each, kind) for each, kind in zip((x, y), kinds, strict=True))

    def mutate(self, x: Any) -> None:
        """CuPy writes on the current GPU alone."""
        ds.run(lambda x: x.__setitem__(..., 77), x)

    def global_state(self) -> object:
        import cupy

        used = cupy.cuda.runtime.getDevice() if ds.device_count() else None
        return used, np.geterr()
