"""Fast paths for plain eager tensors in host memory: a copy, a NumPy array's values, and numbers.

``tf.constant`` looks up the graph, the device scope and a conversion function for the values' type, which takes 8 us
(2.21), and then calls the constructor of eager tensors. The functions below call that constructor directly, where the
result is the same: in code that runs eagerly, outside of device scopes, in a process without GPUs. Elsewhere they
return None.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import gen_array_ops

from devshim.devices.device import CPU
from devshim.devices.dtypes import DTYPES
from devshim.devices.ranges import are_wide_integers
from devshim_backends._tensorflow.devices import DEVICE_BY_NAME
from devshim_backends._tensorflow.internals.locations import EAGER
from devshim_backends._tensorflow.scopes import computes_on_host

if TYPE_CHECKING:
    from devshim.contract.backend import Tensor

__all__ = ["HOST_MAKERS", "copy_array", "copy_on_host", "on_host"]

_DEEP_COPY: Callable[[Any], Any] = gen_array_ops.deep_copy
_ENUMS = frozenset(tf.as_dtype(name).as_datatype_enum for name in DTYPES if hasattr(tf, name))
"""TensorFlow's enum values of devshim's dtypes. Reading a tensor's takes a sixth of the time of reading the name."""
_PLAIN_DTYPES = frozenset(map(np.dtype, "?bhilqBHILQefdFD"))
"""The dtypes of arrays that TensorFlow reads without conversion."""
_TYPE_DEFAULTS: dict[type, np.dtype] = {float: np.dtype("float32"), int: np.dtype("int32")}
"""Python type -> the dtype that TensorFlow gives its numbers; `devshim.full` has checked that an int fits 32 bits."""
_ARRAY_DEFAULTS: dict[np.dtype, np.dtype] = {
    np.dtype("float64"): _TYPE_DEFAULTS[float],
    np.dtype("int64"): _TYPE_DEFAULTS[int],
    **{each: each for each in (np.dtype("bool"), np.dtype("complex128"))},
}
"""NumPy's dtype for Python numbers -> the dtype that TensorFlow gives them."""
_FLOAT32_MAX = float(np.finfo("float32").max)
"""NumPy warns about a larger number, and TensorFlow makes it infinite, so the slow path gets it."""
_ALIGNMENT = 64
"""TensorFlow shares NumPy's memory that is aligned to this many bytes, and copies other memory."""
_HOST = "/job:localhost/replica:0/task:0/device:CPU:0"


def copy_on_host(x: Tensor) -> Tensor | None:
    """Copy a tensor of numbers within host memory, outside compiled functions; return None for other tensors."""
    if DEVICE_BY_NAME.get(x.backing_device) is not CPU or x._datatype_enum() not in _ENUMS:
        return None
    if computes_on_host():
        result = _DEEP_COPY(x)
    elif tf.executing_eagerly():
        with tf.device("/CPU:0"):
            result = _DEEP_COPY(x)
    else:
        return None
    return result if DEVICE_BY_NAME.get(result.backing_device) is CPU else None


def copy_array(array: np.ndarray) -> Tensor | None:
    """Return a tensor with an array's values in new memory, or None if the slow path must make it."""
    if array.dtype not in _PLAIN_DTYPES or not computes_on_host():
        return None
    made = EAGER(array.copy(), _HOST, None)  # the copy is the tensor's memory, or is copied into aligned memory
    return made if DEVICE_BY_NAME.get(made.backing_device) is CPU else None


def on_host(values: Any, dtype: Any) -> Tensor:
    """Return what `tf.constant` returns where `computes_on_host` is True; the result may share an array's memory."""
    if type(values) is np.ndarray and values.dtype in _PLAIN_DTYPES:
        return EAGER(values, _HOST, None)
    return tf.constant(values, dtype)


def _read_numbers(values: object) -> Tensor | None:
    """Return Python numbers as a tensor of the default dtype, or None if the slow path must make it."""
    if not computes_on_host():
        return None
    array = np.asarray(values)
    if array.dtype.kind == "i" and not (array.size and array.min() >= -(2**31) and array.max() < 2**31):
        return None
    if are_wide_integers(values, array):
        return None
    dtype = _ARRAY_DEFAULTS.get(array.dtype)
    return None if dtype is None else EAGER(array.astype(dtype), _HOST, None)


def _fill(shape: tuple[int, ...], value: complex) -> Tensor | None:
    """Return a tensor filled with a number, in aligned memory, which TensorFlow shares instead of copying it."""
    dtype = _TYPE_DEFAULTS.get(type(value))
    return None if dtype is None or abs(value) > _FLOAT32_MAX else _fill_with(value, shape, dtype)


def _fill_like(value: float, x: Tensor) -> Tensor | None:
    """Return a tensor filled with a number, with the shape and dtype of an eager tensor."""
    if type(x) is not EAGER or x._datatype_enum() not in _ENUMS:
        return None
    return _fill_with(value, x._shape_tuple(), np.dtype(x.dtype.as_numpy_dtype))


def _fill_with(value: complex, shape: tuple[int, ...], dtype: np.dtype) -> Tensor | None:
    if not computes_on_host():
        return None
    nbytes = math.prod(shape) * dtype.itemsize
    raw = np.empty(nbytes + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    array = raw[start : start + nbytes].view(dtype).reshape(shape)
    array.fill(value)
    return EAGER(array, _HOST, None)


def _arange(start: float, stop: float, step: float) -> Tensor | None:
    """Return what `TensorflowCreation.arange` returns for numbers that fit 32 bits."""
    if not computes_on_host():
        return None
    array = np.arange(start, stop, step)
    return EAGER(array.astype(_TYPE_DEFAULTS[int if array.dtype.kind == "i" else float]), _HOST, None)


def _eye(n_rows: int, n_cols: int, k: int) -> Tensor | None:
    return EAGER(np.eye(n_rows, n_cols, k, _TYPE_DEFAULTS[float]), _HOST, None) if computes_on_host() else None


def _draw_fractions(shape: tuple[int, ...]) -> np.ndarray | None:
    """Return NumPy's view of the floats from 0 to 1 that TensorFlow draws, or None if the slow path must draw them."""
    return np.asarray(tf.random.uniform(shape, 0, 1, tf.float64)) if computes_on_host() else None


def _randint(low: int, high: int, shape: tuple[int, ...]) -> Tensor | None:
    """Return what `TensorflowRandom.randint` draws, for bounds that fit 32 bits."""
    fractions = _draw_fractions(shape)
    if fractions is None:
        return None
    array = np.floor(fractions * float(high - low)).astype(np.int64) + low
    return EAGER(array.astype(_TYPE_DEFAULTS[int]), _HOST, None)


def _permutation(n: int) -> Tensor | None:
    """Return what `TensorflowRandom.permutation` draws."""
    fractions = _draw_fractions((n,))
    return None if fractions is None else EAGER(np.argsort(fractions).astype(_TYPE_DEFAULTS[int]), _HOST, None)


HOST_MAKERS: dict[str, Callable[..., Any]] = {
    "arange": _arange,
    "asarray": _read_numbers,
    "eye": _eye,
    "full": _fill,
    "ones": partial(_fill, value=1.0),
    "ones_like": partial(_fill_like, 1.0),
    "permutation": _permutation,
    "randint": _randint,
    "zeros": partial(_fill, value=0.0),
    "zeros_like": partial(_fill_like, 0.0),
}
"""See `FastPaths.host_makers`."""
