"""Random arrays, drawn on their device by CuPy's generator for that GPU, or by NumPy's on the host.

Requirements of this module:

* CuPy has one generator for each GPU, and ``cupy.random.seed`` restarts only the current GPU's. devshim restarts all
  that exist. Creating one on a GPU that is not used yet would take half a gigabyte there, so that GPU's generator is
  seeded when devshim first draws from it.
* CuPy draws float32 and float64; narrower numbers are drawn as float32 and rounded.
* CuPy's integers and permutations are limited to 32 bits, so they are computed from 64-bit floats.
* The interval is ``[low, high)``: a number that was rounded to ``high`` is replaced with ``low``.
"""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np
from cupy.random import _generator

from devshim.contract.backend import Tensor
from devshim.devices.device import CPU, Device
from devshim_backends._cupy.creation import library
from devshim_backends._cupy.scopes import current_device
from devshim_backends._cupy.tensors import CupyTensors

_SEED: dict[str, int] = {}
"""The seed for generators that are created from now on."""


class CupyRandom(CupyTensors):
    """The mixin for random arrays."""

    def uniform(
        self,
        low: float,
        high: float,
        shape: tuple[int, ...],
        dtype: Any | None,
        device: Device,
        seed: int | None = None,
    ) -> Tensor:
        with current_device(device):
            drawn = _round(_draw(device, seed, "uniform", low, high, shape, dtype), dtype)
            return library(device).where(drawn >= high, drawn.dtype.type(low), drawn) if low < high else drawn

    def normal(
        self,
        loc: float,
        scale: float,
        shape: tuple[int, ...],
        dtype: Any | None,
        device: Device,
        seed: int | None = None,
    ) -> Tensor:
        with current_device(device):
            return _round(_draw(device, seed, "normal", loc, scale, shape, dtype), dtype)

    def randint(
        self, low: int, high: int, shape: tuple[int, ...], dtype: Any | None, device: Device, seed: int | None = None
    ) -> Tensor:
        with current_device(device):
            drawn = _draw(device, seed, "uniform", 0, 1, shape, np.dtype(np.float64))
            return _round((drawn * float(high - low)).astype(np.int64) + low, dtype)

    def permutation(self, n: int, dtype: Any | None, device: Device, seed: int | None = None) -> Tensor:
        with current_device(device):
            drawn = _draw(device, seed, "uniform", 0, 1, (n,), np.dtype(np.float64))
            return _round(library(device).argsort(drawn), dtype)

    def bernoulli(
        self, p: float, shape: tuple[int, ...], dtype: Any | None, device: Device, seed: int | None = None
    ) -> Tensor:
        with current_device(device):
            return _round(_draw(device, seed, "uniform", 0, 1, shape, np.dtype(np.float64)) < p, dtype)

    def seed(self, value: int) -> None:
        _SEED["gpu"] = value
        np.random.seed(value)
        for index in list(_generator._random_states):
            with cupy.cuda.Device(index):
                cupy.random.seed(value)


def _seed_generator(device: Device) -> None:
    """Seed the current GPU's generator if it does not exist yet but `seed` was called."""
    seed = _SEED.get("gpu")
    if seed is not None and device is not CPU and device.index not in _generator._random_states:
        cupy.random.seed(seed)


def _draw(
    device: Device, seed: int | None, function: str, a: float, b: float, shape: tuple[int, ...], dtype: Any | None
) -> Tensor:
    if seed is None:
        _seed_generator(device)
        source = library(device).random
    else:
        source = library(device).random.RandomState(seed % 2**32)
    draw = getattr(source, function)
    if device is CPU:
        return np.asarray(draw(a, b, shape))
    return draw(a, b, shape, dtype=np.float64 if dtype is None or dtype == np.float64 else np.float32)


def _round(x: Tensor, dtype: Any | None) -> Tensor:
    x = np.asarray(x) if isinstance(x, np.generic) else x  # a NumPy operator returns a scalar for 0 dimensions
    return x if dtype is None else x.astype(dtype, copy=False)
