"""Random draws on a device, and one seed for all devices.

MXNet keeps a generator per device; ``mx.random.seed`` without a device restarts every one of them, devices that have
not been used yet included (seen in 1.9.1 and 2.0.0b1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mxnet as mx
import numpy as np

from devshim_backends._mxnet.creation import MxnetCreation
from devshim_backends._mxnet.native import BFLOAT16, WHERE, numpy_shapes

if TYPE_CHECKING:
    from devshim.backend import Tensor
    from devshim.device import Device


class MxnetDraws(MxnetCreation):
    """The room of random draws."""

    def uniform(self, low: float, high: float, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        return self._drawn("uniform", low, high, shape, dtype, device)

    def normal(self, loc: float, scale: float, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        return self._drawn("normal", loc, scale, shape, dtype, device)

    def seed(self, value: int) -> None:
        mx.random.seed(value)

    def _drawn(self, how: str, a: float, b: float, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        if dtype is not None and np.dtype(dtype) == BFLOAT16:
            return self.cast(self._drawn(how, a, b, shape, np.float32, device), dtype)
        options = {} if dtype is None else {"dtype": np.dtype(dtype).name}
        with numpy_shapes():
            return getattr(mx.np.random, how)(a, b, shape, **options, **{WHERE: self.to_native(device)})
