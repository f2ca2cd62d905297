"""Random numbers drawn directly on the device, and one seed for every generator.

``torch.manual_seed`` restarts the generators of the host and of every accelerator, including those not started yet.
PyTorch promises the range ``[low, high)``, but rounding can reach ``high`` in the low-precision dtypes and for narrow
ranges, so devshim sets that value to ``low``. PyTorch's CUDA kernel makes the same correction for a value equal to
``high``. Where rounding cannot exceed ``high``, that single kernel is enough.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from devshim.contract.backend import Backend
from devshim.devices.device import CPU
from devshim_backends._torch.devices import native
from devshim_backends._torch.tracing import compiles_here

if TYPE_CHECKING:
    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device

_HOST = native(CPU)
_EXACT = frozenset({torch.float32, torch.float64})


def _uniform(low: float, high: float, shape: tuple[int, ...]) -> Tensor | None:
    """Return what `TorchRandom.uniform` draws in host memory; None if rounding can reach ``high``."""
    dtype = torch.get_default_dtype()
    if low == 0 and high == 1 and dtype in _EXACT:
        return torch.rand(shape, device=_HOST)
    return torch.empty(shape, device=_HOST).uniform_(low, high) if _stays_below_on_host(low, high, dtype) else None


def _normal(loc: float, scale: float, shape: tuple[int, ...]) -> Tensor:
    """Return what `TorchRandom.normal` draws in host memory."""
    if loc == 0 and scale == 1:
        return torch.randn(shape, device=_HOST)
    return torch.empty(shape, device=_HOST).normal_(loc, scale)


HOST_MAKERS: dict[str, Any] = {
    "normal": _normal,
    "permutation": partial(torch.randperm, device=_HOST),
    "randint": partial(torch.randint, device=_HOST),
    "uniform": _uniform,
}
"""See `FastPaths.host_makers`."""


class TorchRandom(Backend):
    """Mixin for random numbers."""

    def uniform(
        self,
        low: float,
        high: float,
        shape: tuple[int, ...],
        dtype: Any | None,
        device: Device,
        seed: int | None = None,
    ) -> Tensor:
        x = torch.empty(shape, dtype=dtype, device=native(device)).uniform_(low, high, **_source(seed, device))
        if low == 0 and high == 1 and x.is_cpu and x.dtype in _EXACT:
            return x  # a multiple of 2**-24 or 2**-53 below 1, which no operation rounds
        if low >= high:
            return x
        if not compiles_here() and (x.is_cpu or x.is_cuda):
            bounded = _stays_below_on_host if x.is_cpu else _stays_below
            if bounded(low, high, x.dtype):
                return x
        return x.masked_fill_(x >= high, low)

    def normal(
        self,
        loc: float,
        scale: float,
        shape: tuple[int, ...],
        dtype: Any | None,
        device: Device,
        seed: int | None = None,
    ) -> Tensor:
        if loc == 0 and scale == 1 and seed is None:
            return torch.randn(shape, dtype=dtype, device=native(device))  # the same numbers, in one call
        return torch.empty(shape, dtype=dtype, device=native(device)).normal_(loc, scale, **_source(seed, device))

    def randint(
        self, low: int, high: int, shape: tuple[int, ...], dtype: Any | None, device: Device, seed: int | None = None
    ) -> Tensor:
        x = torch.randint(low, high, shape, dtype=torch.int64, device=native(device), **_source(seed, device))
        return x if dtype is None else x.to(dtype)

    def permutation(self, n: int, dtype: Any | None, device: Device, seed: int | None = None) -> Tensor:
        x = torch.randperm(n, dtype=torch.int64, device=native(device), **_source(seed, device))
        return x if dtype is None else x.to(dtype)

    def bernoulli(
        self, p: float, shape: tuple[int, ...], dtype: Any | None, device: Device, seed: int | None = None
    ) -> Tensor:
        x = torch.empty(shape, dtype=torch.bool, device=native(device)).bernoulli_(p, **_source(seed, device))
        return x if dtype is None else x.to(dtype)

    def seed(self, value: int) -> None:
        torch.manual_seed(value)


def _source(seed: int | None, device: Device) -> dict[str, Any]:
    """Return the argument with a new generator for one draw; without a seed, none: the device's own generator draws."""
    if seed is None:
        return {}
    generator = torch.Generator(device=native(device))
    generator.manual_seed(seed)
    return {"generator": generator}


_LARGEST_DRAWS: dict[Any, tuple[Any, float]] = {
    torch.float32: (np.float32, 1 - 2.0**-24),
    torch.float64: (np.float64, 1 - 2.0**-53),
}
"""Dtype -> NumPy's numbers of it, and the largest draw from 0 to 1 in host memory (2.10 to 2.13)."""


@lru_cache(maxsize=256)
def _stays_below_on_host(low: float, high: float, dtype: Any) -> bool:
    """Return True if the host's formula, ``draw * (high - low) + low``, is less than ``high`` for every draw.

    It is largest for the largest draw. PyTorch computes the difference in the dtype, and the rest in float64 (2.13);
    the result must also be less if all of it is computed in the dtype. NumPy computes it: a mode of PyTorch that makes
    fake tensors, or records operators, has no numbers to compare.
    """
    if dtype not in _LARGEST_DRAWS:
        return False
    number, draw = _LARGEST_DRAWS[dtype]
    with np.errstate(all="ignore"):  # an overflow gives infinity, which is not less
        first, last = number(low), number(high)
        for wide in (np.float64, number):
            largest = number(wide(draw) * wide(last - first) + wide(first))
            if not (largest < last and float(largest) < high):
                return False
    return True


@lru_cache(maxsize=256)
def _stays_below(low: float, high: float, dtype: Any) -> bool:
    """Return True if CUDA's formula, ``draw * (high - low) + low``, is at most ``high`` for every draw up to 1."""
    first, last = torch.tensor([low, high], dtype=dtype, device="cpu")
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    return bool(((last - first).to(wide) + first.to(wide)).to(dtype) <= last)
