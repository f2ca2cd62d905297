"""NumPy arrays that JAX may keep, and a fast path that commits them, in a quarter of the time of ``jax.device_put``.

``jax.device_put`` looks at trees, shardings, donation and aliasing, which takes 20 us for an array of 16 numbers (JAX
0.10). At the end it calls the function that this module calls, under the same JAX transfer guard.

The fast path is for arrays that need nothing else: of a dtype that ``jax_enable_x64`` does not change, outside traces,
and without simulated GPUs, which count what `device_put` makes. For others the function returns None, and so it does if
JAX fails; the caller then takes the slow path, which fails in the same way, and says why.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax._src import core
from jax._src.config import explicit_device_put_scope
from jax._src.core import trace_state_clean
from jax._src.interpreters import pxla

from devshim_backends._jax.internals.widths import NARROW

if TYPE_CHECKING:
    from devshim.contract.backend import Tensor

__all__ = ["ALIGNMENT", "commit_on_host", "is_narrow", "private_copy", "private_memory"]

ALIGNMENT = 64
"""XLA shares host memory on the CPU that is aligned to this many bytes."""


def private_copy(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return a copy with a dtype that JAX may keep: in C order, in aligned memory that only the result refers to."""
    copied = private_memory(array.shape, dtype)
    copied[...] = array
    return copied


def private_memory(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return an array of any values that JAX may keep: in C order, in aligned memory."""
    nbytes = prod(shape) * dtype.itemsize
    raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + nbytes].view(dtype).reshape(shape)


@lru_cache(maxsize=4)
def _sharding_on(native: Any) -> Any:
    return jax.sharding.SingleDeviceSharding(native)


def is_narrow(dtype: np.dtype) -> bool:
    """Return True for a dtype of `commit_on_host`."""
    return dtype in NARROW


def commit_on_host(array: np.ndarray, native: Any) -> Tensor | None:
    """Return a committed JAX array over memory that nothing else refers to, or None; the dtype is narrow.

    Args:
        array: An array in C order, in aligned memory (`private_copy`).
        native: JAX's device of the host.
    """
    if not trace_state_clean():
        return None
    try:
        with explicit_device_put_scope():
            kind = core.ShapedArray(array.shape, array.dtype)
            return pxla.batched_device_put(kind, _sharding_on(native), [array], [native])
    except Exception:
        return None
