"""Random NumPy arrays: one generator serves all devices, and one seed restarts it."""

from __future__ import annotations

from typing import Any

import numpy as np

from devshim.contract.backend import Tensor
from devshim.devices.device import Device
from devshim_backends._numpy.tensors import NumpyTensors


class NumpyRandom(NumpyTensors):
    """The mixin for random arrays. NumPy's global generator draws them, so both libraries' `seed` restarts it."""

    def uniform(self, low: float, high: float, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        return self.to_device(np.asarray(np.random.uniform(low, high, shape), dtype), device)

    def normal(self, loc: float, scale: float, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        return self.to_device(np.asarray(np.random.normal(loc, scale, shape), dtype), device)

    def seed(self, value: int) -> None:
        np.random.seed(value)
