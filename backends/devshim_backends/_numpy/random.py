"""Random NumPy arrays: one generator serves all devices, and one seed restarts it."""

from __future__ import annotations

from typing import Any

import numpy as np

from devshim.contract.backend import Tensor
from devshim.devices.device import Device
from devshim.devices.ranges import keep_below
from devshim_backends._numpy.tensors import NumpyTensors


def _uniform(low: float, high: float, shape: tuple[int, ...]) -> Tensor | None:
    """Return the same numbers as `NumpyRandom.uniform`; None for a single number, which NumPy returns as a float."""
    if not shape:
        return None
    if low == 0 and high == 1:
        return np.random.random_sample(shape)
    return keep_below(np.random.uniform(low, high, shape), low, high, None)


def _normal(loc: float, scale: float, shape: tuple[int, ...]) -> Tensor | None:
    """Return the same numbers as `NumpyRandom.normal`; None as for `_uniform`."""
    if not shape:
        return None
    return np.random.standard_normal(shape) if loc == 0 and scale == 1 else np.random.normal(loc, scale, shape)


HOST_MAKERS: dict[str, Any] = {"normal": _normal, "uniform": _uniform}
"""See `FastPaths.host_makers`."""


class NumpyRandom(NumpyTensors):
    """The mixin for random arrays. NumPy's global generator draws them, so both libraries' `seed` restarts it."""

    def uniform(
        self,
        low: float,
        high: float,
        shape: tuple[int, ...],
        dtype: Any | None,
        device: Device,
        seed: int | None = None,
    ) -> Tensor:
        values = _source(seed).uniform(low, high, shape)
        values = keep_below(values, low, high, None if dtype is None else np.dtype(dtype).name)
        return self.to_device(np.asarray(values, dtype), device)

    def normal(
        self,
        loc: float,
        scale: float,
        shape: tuple[int, ...],
        dtype: Any | None,
        device: Device,
        seed: int | None = None,
    ) -> Tensor:
        return self.to_device(np.asarray(_source(seed).normal(loc, scale, shape), dtype), device)

    def randint(
        self, low: int, high: int, shape: tuple[int, ...], dtype: Any | None, device: Device, seed: int | None = None
    ) -> Tensor:
        return self.to_device(np.asarray(_source(seed).randint(low, high, shape, np.int64), dtype), device)

    def permutation(self, n: int, dtype: Any | None, device: Device, seed: int | None = None) -> Tensor:
        return self.to_device(np.asarray(_source(seed).permutation(n), dtype or np.int64), device)

    def bernoulli(
        self, p: float, shape: tuple[int, ...], dtype: Any | None, device: Device, seed: int | None = None
    ) -> Tensor:
        return self.to_device(np.asarray(_source(seed).random_sample(shape) < p, dtype), device)

    def seed(self, value: int) -> None:
        np.random.seed(value)


def _source(seed: int | None) -> Any:
    """Return NumPy's global generator, or a new one for one draw; both have the methods of `RandomState`."""
    return np.random if seed is None else np.random.RandomState(np.random.PCG64(seed))
