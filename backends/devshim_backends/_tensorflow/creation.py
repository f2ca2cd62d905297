"""Functions that create TensorFlow tensors on exactly the requested device, in TensorFlow's dtypes.

Requirements of this module:

* A tensor is on the requested device and no other. TensorFlow's defaults are ``GPU:0``, and the host for int32.
* A 0-d tensor has its own memory. ``tf.constant(3.0)`` returns the same buffer to every caller, and another
  framework that shares it could change it for the whole process. TensorFlow does not share NumPy arrays in this way.
* Lengths and values are those of the array API. Ranges are computed in 64 bits (``tf.range(0., .3, .1)`` uses 32), an
  empty range is not an error, and integers that do not fit int32, TensorFlow's default, become int64.
* A GPU has no operator that fills uint32 and uint64, and none that allocates some other dtypes (2.21). TensorFlow makes
  these on the host and copies them, unless soft placement is off; in that case `_create_or_copy` does it.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from devshim.devices.device import CPU
from devshim.devices.ranges import read_numbers, require_values_fit
from devshim.errors import ConversionError, DevshimError, messages
from devshim_backends._tensorflow.host_tensors import on_host
from devshim_backends._tensorflow.scopes import (
    TensorflowScopes,
    computes_on_host,
    has_started_with_host_alone,
    in_xla,
)
from devshim_backends._tensorflow.tensors import NAMES, TensorflowTensors

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device

_DTYPES = {name: tf.as_dtype(name) for name in NAMES}
_SMALL = {name: dtype for name, dtype in vars(tf.dtypes.experimental).items() if isinstance(dtype, tf.DType)}
"""Numbers of 8 bits or fewer, which TensorFlow can store and copy, but for which it has few operators."""
_NUMPY_DTYPES = {name: dtype.as_numpy_dtype for name, dtype in _DTYPES.items()}


class TensorflowCreation(TensorflowTensors, TensorflowScopes):
    """The mixin for creation functions."""

    def dtype(self, name: str) -> Any:
        found = _DTYPES.get(name) or _SMALL.get(name)
        if found is None:
            raise messages.no_dtype(self, name)
        return found

    def is_dtype(self, value: object) -> bool:
        return isinstance(value, tf.DType)

    def asarray(self, values: object, dtype: Any | None, device: Device) -> Tensor:
        if device is CPU and dtype is not None and computes_on_host():
            return _constant(values, dtype, on_host)
        return self.create(device, lambda: _constant(values, dtype))

    def cast(self, x: Tensor, dtype: Any) -> Tensor:
        if tf.is_symbolic_tensor(x):
            with self._scope_in_trace([x]):
                return tf.cast(x, dtype)
        return self.create(self.device_of(x), lambda: tf.cast(x, dtype))

    def empty(self, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        def allocate() -> Tensor:
            return tf.raw_ops.Empty(shape=tf.constant(shape, tf.int32), dtype=dtype or tf.float32, init=False)

        return self._create_or_copy(device, allocate)

    def full(self, shape: tuple[int, ...], value: complex, dtype: Any | None, device: Device) -> Tensor:
        return self._create_or_copy(device, lambda: tf.fill(shape, _constant(value, dtype)))

    def zeros(self, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        return self._create_or_copy(device, lambda: tf.zeros(shape, dtype or tf.float32))

    def ones(self, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        return self._create_or_copy(device, lambda: tf.ones(shape, dtype or tf.float32))

    def _create_or_copy(self, device: Device, make: Callable[[], Tensor]) -> Tensor:
        """Return a tensor that a function makes; it runs on the host, and the result is copied, if a GPU cannot."""

        def make_somewhere() -> Tensor:
            try:
                return make()
            except tf.errors.InvalidArgumentError as error:
                if not self.is_accelerator(device) or "Could not satisfy device specification" not in str(error):
                    raise
            with tf.device("/CPU:0"):
                return make()

        return self.create(device, make_somewhere)

    def arange(self, start: float, stop: float, step: float, dtype: Any | None, device: Device) -> Tensor:
        return self.create(device, lambda: _range(start, stop, step, dtype))

    def create_beside(self, x: Tensor | None, call: str, args: tuple[Any, ...], dtype: Any) -> Tensor:
        make = {
            "asarray": _constant,
            "arange": _range,
            "linspace": lambda start, stop, num, end, kind: _constant(np.linspace(start, stop, num, end), kind),
            "eye": _eye,
            "full": lambda shape, value, kind: tf.fill(shape, _constant(value, kind)),
            "full_like": lambda value, kind: tf.fill(tf.shape(x), _constant(value, kind)),
            "ones": tf.ones,
            "ones_like": lambda kind: tf.ones_like(x, kind),
            "zeros_like": lambda kind: tf.zeros_like(x, kind),
            "empty_like": lambda kind: tf.zeros_like(x, kind),
        }.get(call, tf.zeros)
        with (None if x is None else self.scope_of_tracers([x])) or nullcontext():
            made = make(*args, dtype)
        if not in_xla() and not has_started_with_host_alone():
            self._refuse_hosted(made, None, call, "create")
        return made

    def linspace(
        self, start: float, stop: float, num: int, dtype: Any | None, device: Device, endpoint: bool
    ) -> Tensor:
        values = np.linspace(start, stop, num, endpoint=endpoint)  # tf.linspace has no endpoint and refuses num=0
        return self.asarray(values, dtype, device)

    def eye(self, n_rows: int, n_cols: int, k: int, dtype: Any | None, device: Device) -> Tensor:
        return self.create(device, lambda: _eye(n_rows, n_cols, k, dtype))


def _range(start: float, stop: float, step: float, dtype: Any | None) -> Tensor:
    integers = all(isinstance(value, int) for value in (start, stop, step))
    computed, default = (tf.int64, default_integer(start, stop)) if integers else (tf.float64, tf.float32)
    end = max(start, stop) if step > 0 else min(start, stop)  # tf.range refuses a stop on the wrong side
    return tf.cast(tf.range(start, end, step, computed), dtype or default)


def _eye(n_rows: int, n_cols: int, k: int, dtype: Any | None) -> Tensor:
    shift = max(-n_rows, min(k, n_cols))
    rows, columns = tf.range(n_rows)[:, None] + shift, tf.range(n_cols)[None, :]
    return tf.cast(tf.equal(rows, columns), dtype or tf.float32)


def _constant(values: Any, dtype: Any | None, make: Callable[[Any, Any], Tensor] = tf.constant) -> Tensor:
    """Return a tensor of Python or NumPy numbers, in the scope of a device."""
    try:
        return make(*_prepare_values(values, dtype))
    except DevshimError:
        raise
    except (OverflowError, TypeError, ValueError) as error:
        msg = f"TensorFlow cannot read these values: {str(error)[:200]}"
        raise ConversionError(
            msg,
            "pass a number, or nested sequences of numbers whose rows are equally long",
        ) from error


def _prepare_values(values: Any, dtype: Any | None) -> tuple[Any, Any | None]:
    """Return Python or NumPy numbers as an array for `tf.constant`, which does not share arrays, and their dtype.

    Without a dtype TensorFlow chooses one, except for integers that do not fit int32. With a dtype, values are
    converted as in NumPy and in the other adapters.
    """
    dtype = _default_dtype(values) if dtype is None else dtype
    if dtype is None or dtype is tf.string:
        return values, dtype
    array = read_numbers(values, dtype.name)
    require_values_fit(values, dtype.name, array)
    return array.astype(_NUMPY_DTYPES.get(dtype.name) or dtype.as_numpy_dtype), dtype


def _default_dtype(values: Any) -> Any | None:
    """Return TensorFlow's default dtype for Python numbers, or None if the values are not all numbers."""
    try:
        array = read_numbers(values)
    except DevshimError:
        raise
    except ValueError:  # rows have unequal lengths: TensorFlow's own error is clearer
        return None
    if array.dtype.kind in "iu":
        return default_integer(array.min(initial=0), array.max(initial=0))
    return {"b": tf.bool, "f": tf.float32, "c": tf.complex128}.get(array.dtype.kind)


def default_integer(*values: Any) -> Any:
    """Return TensorFlow's default integer dtype, int32, or int64 if a value does not fit it."""
    return tf.int32 if all(-(2**31) <= value < 2**31 for value in values) else tf.int64
