"""Random tensors, drawn on their device, with one seed for all devices.

`tf.random.set_seed` restarts the stream from which the stateful operators of all devices take their seeds. The global
`tf.random.Generator`, if the user has created it, is independent, and `seed` restarts it as well. In low-precision
dtypes and narrow ranges, a drawn number can be rounded up to ``high``, which the contract excludes: such a number is
replaced with ``low``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.ops import stateful_random_ops

from devshim.errors import ConversionError
from devshim_backends._tensorflow.scopes import TensorflowScopes
from devshim_backends._tensorflow.tensors import TensorflowTensors

if TYPE_CHECKING:
    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device


class TensorflowRandom(TensorflowTensors, TensorflowScopes):
    """The mixin for random tensors."""

    def uniform(self, low: float, high: float, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        def draw() -> Tensor:
            x = tf.random.uniform(shape, low, high, _floating_dtype(dtype))
            if low < high and (low, high) != (0, 1):
                bound = tf.constant(low, x.dtype)
                x = tf.where(x < tf.constant(high, x.dtype), x, bound)
            return x

        return self.create(device, draw)

    def normal(self, loc: float, scale: float, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        return self.create(device, lambda: tf.random.normal(shape, loc, scale, _floating_dtype(dtype)))

    def seed(self, value: int) -> None:
        tf.random.set_seed(value)
        if stateful_random_ops.global_generator is not None:  # tf.random would create one on a GPU if asked for it
            stateful_random_ops.global_generator.reset_from_seed(value)


def _floating_dtype(dtype: Any | None) -> Any:
    if dtype is None:
        return tf.float32
    if not dtype.is_floating:
        msg = f"TensorFlow cannot draw random numbers of dtype {dtype.name}"
        raise ConversionError(msg, "draw a floating dtype and cast it")
    return dtype
