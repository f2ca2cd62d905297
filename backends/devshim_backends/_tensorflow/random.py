"""Random tensors, drawn on their device, with one seed for all devices.

`tf.random.set_seed` restarts the stream from which the stateful operators of all devices take their seeds. The global
`tf.random.Generator`, if the user has created it, is independent, and `seed` restarts it as well. In low-precision
dtypes and narrow ranges, a drawn number can be rounded up to ``high``, which the contract excludes: that number is
replaced with ``low``.

TensorFlow has no operator that draws integers from 64-bit fractions or that shuffles on a GPU, so integers are computed
from floats of 53 bits, and a permutation is the order of such floats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.ops import stateful_random_ops

from devshim.errors import ConversionError
from devshim_backends._tensorflow.creation import default_integer
from devshim_backends._tensorflow.scopes import TensorflowScopes
from devshim_backends._tensorflow.tensors import TensorflowTensors

if TYPE_CHECKING:
    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device


class TensorflowRandom(TensorflowTensors, TensorflowScopes):
    """The mixin for random tensors."""

    def uniform(
        self,
        low: float,
        high: float,
        shape: tuple[int, ...],
        dtype: Any | None,
        device: Device,
        seed: int | None = None,
    ) -> Tensor:
        def draw() -> Tensor:
            x = _uniform(shape, low, high, _floating_dtype(dtype), seed)
            if low < high and (low, high) != (0, 1):
                bound = tf.constant(low, x.dtype)
                x = tf.where(x < tf.constant(high, x.dtype), x, bound)
            return x

        return self.create(device, draw)

    def normal(
        self,
        loc: float,
        scale: float,
        shape: tuple[int, ...],
        dtype: Any | None,
        device: Device,
        seed: int | None = None,
    ) -> Tensor:
        wanted = _floating_dtype(dtype)

        def draw() -> Tensor:
            if seed is None:
                return tf.random.normal(shape, loc, scale, wanted)
            return tf.random.stateless_normal(shape, _seed_pair(seed), loc, scale, wanted)

        return self.create(device, draw)

    def randint(
        self, low: int, high: int, shape: tuple[int, ...], dtype: Any | None, device: Device, seed: int | None = None
    ) -> Tensor:
        wanted = default_integer(low, high - 1) if dtype is None else dtype

        def draw() -> Tensor:
            fractions = _uniform(shape, 0, 1, tf.float64, seed)
            steps = tf.cast(tf.floor(fractions * tf.constant(high - low, tf.float64)), tf.int64)
            return tf.cast(steps + tf.constant(low, tf.int64), wanted)

        return self.create(device, draw)

    def permutation(self, n: int, dtype: Any | None, device: Device, seed: int | None = None) -> Tensor:
        def draw() -> Tensor:
            return tf.cast(tf.argsort(_uniform((n,), 0, 1, tf.float64, seed)), dtype or default_integer(n))

        return self.create(device, draw)

    def bernoulli(
        self, p: float, shape: tuple[int, ...], dtype: Any | None, device: Device, seed: int | None = None
    ) -> Tensor:
        def draw() -> Tensor:
            x = _uniform(shape, 0, 1, tf.float64, seed) < tf.constant(p, tf.float64)
            return x if dtype is None else tf.cast(x, dtype)

        return self.create(device, draw)

    def seed(self, value: int) -> None:
        tf.random.set_seed(value)
        if stateful_random_ops.global_generator is not None:  # tf.random would create one on a GPU if asked for it
            stateful_random_ops.global_generator.reset_from_seed(value)


def _uniform(shape: tuple[int, ...], low: float, high: float, dtype: Any, seed: int | None) -> Tensor:
    if seed is None:
        return tf.random.uniform(shape, low, high, dtype)
    return tf.random.stateless_uniform(shape, _seed_pair(seed), low, high, dtype)


def _seed_pair(seed: int) -> list[int]:
    """Return 62 bits of a seed as the two integers that TensorFlow's stateless operators take."""
    return [seed >> 32 & 0x7FFFFFFF, seed & 0x7FFFFFFF]


def _floating_dtype(dtype: Any | None) -> Any:
    if dtype is None:
        return tf.float32
    if not dtype.is_floating:
        msg = f"TensorFlow cannot draw random numbers of dtype {dtype.name}"
        raise ConversionError(msg, "draw a floating dtype and cast it")
    return dtype
