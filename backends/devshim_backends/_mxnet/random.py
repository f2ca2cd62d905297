"""Random arrays on a device, and one seed for all devices.

MXNet has one generator per device; ``mx.random.seed`` without a device restarts all of them, including those of devices
that have not been used yet (seen in 1.9.1 and 2.0.0b1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mxnet as mx

from devshim_backends._mxnet.creation import MxnetCreation
from devshim_backends._mxnet.native import numpy_shapes

if TYPE_CHECKING:
    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device


class MxnetRandom(MxnetCreation):
    """The mixin for random arrays."""

    def uniform(self, low: float, high: float, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        with numpy_shapes():
            x = mx.np.random.uniform(low, high, shape, **self.options(dtype, device))
            return self.round_to(x, dtype)

    def normal(self, loc: float, scale: float, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        with numpy_shapes():
            x = mx.np.random.normal(loc, scale, shape, **self.options(dtype, device))
            return self.round_to(x, dtype)

    def seed(self, value: int) -> None:
        mx.random.seed(value)
