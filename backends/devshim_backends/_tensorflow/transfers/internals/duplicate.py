"""Copies of a tensor on its own GPU, including dtypes for which TensorFlow (2.21) has no ``DeepCopy`` there.

A copy through the host would cross the bus twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.ops import gen_array_ops

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.contract.backend import Tensor

_SAME_WIDTH = {
    **dict.fromkeys(("int16", "uint16"), tf.float16),
    **dict.fromkeys(("int32", "uint32"), tf.float32),
    **dict.fromkeys(("complex64", "complex128"), tf.float64),
}
"""Maps a dtype without a GPU kernel to one with a kernel that has the same width, or half of it for complex128."""


def gpu_copier(dtype: Any) -> Callable[[Tensor], Tensor]:
    """Return a function that copies tensors of a dtype, in the scope of the GPU that they are on."""
    if dtype == tf.bool:
        return _copy_bools
    if dtype.name not in _SAME_WIDTH:
        return gen_array_ops.deep_copy  # type: ignore[no-any-return]  # TensorFlow is Any
    return _copy_complex if dtype.is_complex else _copy_bits


def _copy_bools(x: Tensor) -> Tensor:
    return tf.logical_or(x, x)  # no other dtype has the same bits as bool


def _copy_bits(x: Tensor) -> Tensor:
    return tf.bitcast(gen_array_ops.deep_copy(tf.bitcast(x, _SAME_WIDTH[x.dtype.name])), x.dtype)


@tf.custom_gradient  # type: ignore[untyped-decorator]  # TensorFlow is Any
def _copy_complex(x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Copy a tensor so that gradients flow through the copy, as they do not through ``bitcast``."""
    return _copy_bits(x), tf.identity
