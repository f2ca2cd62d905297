"""Making tensors on exactly the device asked for, in TensorFlow's own dtypes.

Requirements this module answers:

* On that device and no other: TensorFlow would take ``GPU:0`` by itself, and keep int32 on the host.
* A 0-d tensor has memory of its own.  ``tf.constant(3.0)`` gives every caller the same buffer, which a view from
  another framework could write to for the whole process; an array of NumPy's is not shared like that.
* The array API's lengths and values: ranges are counted in 64 bits (``tf.range(0., .3, .1)`` counts in 32), an empty
  range is no error, and integers too wide for int32, TensorFlow's default, become int64.
* A card has no operator that fills uint32 and uint64, and none that allocates a few more dtypes (2.21): TensorFlow
  makes these on the host and copies them, unless soft placement is off; then `_made_anyway` does.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from devshim.errors import ConversionError, messages
from devshim_backends._tensorflow.scopes import TensorflowScopes
from devshim_backends._tensorflow.simulation.memory import LOCAL
from devshim_backends._tensorflow.tensors import NAMES, TensorflowTensors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device

_DTYPES = {name: tf.as_dtype(name) for name in NAMES}
_SMALL = {name: dtype for name, dtype in vars(tf.dtypes.experimental).items() if isinstance(dtype, tf.DType)}
"""Numbers of 8 bits and less, which are stored and copied, and which few operators know."""
_NUMPY_DTYPES = {name: dtype.as_numpy_dtype for name, dtype in _DTYPES.items()}


class TensorflowCreation(TensorflowTensors, TensorflowScopes):
    """The room of creation."""

    def dtype(self, name: str) -> Any:
        found = _DTYPES.get(name) or _SMALL.get(name)
        if found is None:
            raise messages.no_dtype(self, name)
        return found

    def is_dtype(self, value: object) -> bool:
        return isinstance(value, tf.DType)

    def asarray(self, values: object, dtype: Any | None, device: Device) -> Tensor:
        with self.making(device), LOCAL.aside:
            with _reading():
                made = tf.constant(*_prepared(values, dtype))
            return self.made(made, device)

    def cast(self, x: Tensor, dtype: Any) -> Tensor:
        if tf.is_symbolic_tensor(x):
            return tf.cast(x, dtype)
        where = self.device_of(x)
        with self.making(where), LOCAL.aside:
            made = tf.cast(x, dtype)
            return self.made(made, where)

    def empty(self, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        with self.making(device), LOCAL.aside:
            sizes = tf.constant(shape, tf.int32)
            made = self._made_anyway(
                lambda: tf.raw_ops.Empty(shape=sizes, dtype=dtype or tf.float32, init=False), device
            )
            return self.made(made, device)

    def full(self, shape: tuple[int, ...], value: complex, dtype: Any | None, device: Device) -> Tensor:
        with self.making(device), LOCAL.aside:
            with _reading():
                number = tf.constant(*_prepared(value, dtype))
            made = self._made_anyway(lambda: tf.fill(shape, number), device)
            return self.made(made, device)

    def zeros(self, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        with self.making(device), LOCAL.aside:
            made = self._made_anyway(lambda: tf.zeros(shape, dtype or tf.float32), device)
            return self.made(made, device)

    def ones(self, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        with self.making(device), LOCAL.aside:
            made = self._made_anyway(lambda: tf.ones(shape, dtype or tf.float32), device)
            return self.made(made, device)

    def _made_anyway(self, make: Callable[[], Tensor], device: Device) -> Tensor:
        """Return what an operator makes, or makes on the host where a card has no such operator."""
        try:
            return make()
        except tf.errors.InvalidArgumentError as error:
            if not self.is_card(device) or "Could not satisfy device specification" not in str(error):
                raise
        with tf.device("/CPU:0"):
            return make()

    def arange(self, start: float, stop: float, step: float, dtype: Any | None, device: Device) -> Tensor:
        whole = all(isinstance(value, int) for value in (start, stop, step))
        wide = _default_integer(start, stop) if whole else tf.float32
        end = max(start, stop) if step > 0 else min(start, stop)  # tf.range refuses a stop on the wrong side
        with self.making(device), LOCAL.aside:
            made = tf.cast(tf.range(start, end, step, tf.int64 if whole else tf.float64), dtype or wide)
            return self.made(made, device)

    def linspace(
        self, start: float, stop: float, num: int, dtype: Any | None, device: Device, endpoint: bool
    ) -> Tensor:
        values = np.linspace(start, stop, num, endpoint=endpoint)  # tf.linspace has no endpoint, and refuses num=0
        with self.making(device), LOCAL.aside:
            with _reading():
                made = tf.constant(*_prepared(values, dtype))
            return self.made(made, device)

    def eye(self, n_rows: int, n_cols: int, k: int, dtype: Any | None, device: Device) -> Tensor:
        shift = max(-n_rows, min(k, n_cols))
        with self.making(device), LOCAL.aside:
            rows, columns = tf.range(n_rows)[:, None] + shift, tf.range(n_cols)[None, :]
            made = tf.cast(tf.equal(rows, columns), dtype or tf.float32)
            return self.made(made, device)


@contextmanager
def _reading() -> Iterator[None]:
    """Say of values that they cannot be read."""
    try:
        yield
    except (OverflowError, TypeError, ValueError) as error:
        raise ConversionError(
            f"TensorFlow cannot read these values: {str(error)[:200]}",
            "pass a number, or nested sequences of numbers whose rows are equally long",
        ) from error


def _prepared(values: Any, dtype: Any | None) -> tuple[Any, Any | None]:
    """Python or NumPy numbers and their dtype for `tf.constant`, as an array, which is never its shared scalar.

    Without a dtype TensorFlow chooses, except for integers that its int32 cannot hold; with one, values are
    converted the way NumPy converts them, as on the other frameworks.
    """
    dtype = _default_dtype(values) if dtype is None else dtype
    if dtype is None or dtype is tf.string:
        return values, dtype
    return _fitted(np.asarray(values), _NUMPY_DTYPES.get(dtype.name) or dtype.as_numpy_dtype), dtype


def _fitted(array: np.ndarray, dtype: Any) -> np.ndarray:
    """An array in another dtype; integers that do not fit raise OverflowError instead of wrapping around."""
    wanted = np.dtype(dtype)
    if array.dtype.kind in "iu" and wanted.kind in "iu" and array.size:
        bounds = np.iinfo(wanted)
        if int(array.min()) < bounds.min or int(array.max()) > bounds.max:
            raise OverflowError(f"{wanted.name} holds {bounds.min} to {bounds.max}")
    return array.astype(wanted)


def _default_dtype(values: Any) -> Any | None:
    """TensorFlow's default dtype for Python numbers, or None for values that are not all numbers."""
    try:
        array = np.asarray(values)
    except ValueError:  # rows of unequal length: TensorFlow's own words are better
        return None
    if array.dtype.kind in "iu":
        return _default_integer(array.min(initial=0), array.max(initial=0))
    return {"b": tf.bool, "f": tf.float32, "c": tf.complex128}.get(array.dtype.kind)


def _default_integer(*values: Any) -> Any:
    return tf.int32 if all(-(2**31) <= value < 2**31 for value in values) else tf.int64
