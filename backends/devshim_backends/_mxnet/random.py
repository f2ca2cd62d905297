"""Random arrays on a device, and one seed for all devices.

MXNet has one generator per device; ``mx.random.seed`` without a device restarts all of them, including those of devices
that have not been used yet (seen in 1.9.1 and 2.0.0b1). It has no generators that a program can make: a ``seed`` for
one draw is the gap ``generator``.

``mx.np.random.randint`` of 2.0.0b1 takes bounds of 32 bits, so integers are computed from floats of 53 bits, and a
permutation is the order of such floats.

MXNet's scaling and rounding reach the upper bound of ``uniform``, which the interval excludes, so values are limited to
the largest number of the dtype below it.
"""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any

import mxnet as mx
import numpy as np

from devshim.devices.ranges import largest_draw
from devshim_backends._mxnet.creation import MxnetCreation, is_bfloat16
from devshim_backends._mxnet.internals.native import numpy_shapes

if TYPE_CHECKING:
    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device

_UNSTABLE = {"stable": False} if "stable" in signature(mx.np.argsort).parameters else {}
"""The argument that keeps MXNet 2.0 from warning that it sorts with quicksort; 1.9 has no such argument."""


class MxnetRandom(MxnetCreation):
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
        with numpy_shapes():
            x = mx.np.random.uniform(low, high, shape, **self.options(dtype, device))
            name = "bfloat16" if dtype is not None and is_bfloat16(dtype) else self.dtype_name(x)
            if low or name not in ("float32", "float64"):
                x = mx.np.minimum(x, largest_draw(low, high, name))
            return self.round_to(x, dtype)

    def normal(
        self,
        loc: float,
        scale: float,
        shape: tuple[int, ...],
        dtype: Any | None,
        device: Device,
        seed: int | None = None,
    ) -> Tensor:
        with numpy_shapes():
            x = mx.np.random.normal(loc, scale, shape, **self.options(dtype, device))
            return self.round_to(x, dtype)

    def randint(
        self, low: int, high: int, shape: tuple[int, ...], dtype: Any | None, device: Device, seed: int | None = None
    ) -> Tensor:
        with numpy_shapes():
            steps = mx.np.floor(self._fractions(shape, device) * float(high - low)).astype("int64")
            return self._finish(steps + low, dtype, device)

    def permutation(self, n: int, dtype: Any | None, device: Device, seed: int | None = None) -> Tensor:
        with numpy_shapes():
            return self._finish(mx.np.argsort(self._fractions((n,), device), **_UNSTABLE), dtype, device)

    def bernoulli(
        self, p: float, shape: tuple[int, ...], dtype: Any | None, device: Device, seed: int | None = None
    ) -> Tensor:
        with numpy_shapes():
            return self._finish(self._fractions(shape, device) < p, dtype, device)

    def _fractions(self, shape: tuple[int, ...], device: Device) -> Tensor:
        """Return uniform float64 numbers on the device, or on the host if the device cannot hold them."""
        there = self.device_for_dtype("float64", device)
        return mx.np.random.uniform(0, 1, shape, **self.options(np.dtype(np.float64), there))

    def _finish(self, x: Tensor, dtype: Any | None, device: Device) -> Tensor:
        made = x if dtype is None else self.cast(x, dtype)
        return made if self.device_of(made) is device else self.copy_to(made, device)

    def seed(self, value: int) -> None:
        mx.random.seed(value)
