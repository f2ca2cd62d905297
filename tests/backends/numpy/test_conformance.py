"""The conformance kit on NumPy."""

from __future__ import annotations

from devshim.testing import Conformance


class TestNumpy(Conformance):
    backend = "numpy"

    def global_state(self) -> object:
        import numpy as np

        return np.geterr(), np.get_printoptions()
