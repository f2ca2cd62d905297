"""Copies of TensorFlow tensors, and their conversion from and to NumPy arrays.

Requirements of this module:

* A copy always has new memory. ``tf.identity`` shares the buffer on one device and between logical CPUs, which shows
  through DLPack. ``DeepCopy`` does not share, and gets a gradient here, which TensorFlow lacks.
* int32 can be on a GPU. Operators keep it in host memory even in a GPU's scope; a tensor's own copy method does not.
* A variable that must move becomes a tensor, through which gradients flow to the variable.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache, partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import gen_array_ops

from devshim.devices.device import CPU
from devshim.devices.dtypes import DTYPES
from devshim.errors import ConversionError, UnsupportedError, messages
from devshim_backends._tensorflow.host_tensors import copy_array
from devshim_backends._tensorflow.internals.locations import (
    COMPOSITES,
    EAGER,
    ON_HOST,
    PLACED,
    TensorflowLocations,
    parts_of,
    require_dense,
)
from devshim_backends._tensorflow.internals.shapes import shape_of
from devshim_backends._tensorflow.scopes import in_xla, refused_in_xla
from devshim_backends._tensorflow.simulation.hooks import count_results
from devshim_backends._tensorflow.simulation.memory import BUFFERED, LOCAL, memory_view
from devshim_backends._tensorflow.transfers.internals import duplicate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device

NAMES = frozenset(DTYPES)
"""The array-API dtypes, for which TensorFlow has the same names."""

_HANDLES = frozenset({tf.string, tf.resource, tf.variant})
"""Dtypes whose tensors can only be in host memory."""

_ML_DTYPES = 2
"""NumPy's ``isbuiltin`` for the dtypes of ``ml_dtypes``, for which TensorFlow can give NumPy its memory."""

_DEEP_COPY_DTYPES = frozenset({"float16", "bfloat16", "float32", "float64", "int8", "uint8", "int64", "uint64"})
"""Dtypes for which every GPU has ``DeepCopy`` (2.21)."""


@cache
def _item_bytes(dtype: int) -> int:
    """Return the bytes of one element; ``x.dtype.size`` takes five times as long."""
    return int(tf.as_dtype(dtype).size)


_COPY: Callable[[Tensor], Tensor] = EAGER._copy
_DEEP_COPY: Callable[[Tensor], Tensor] = gen_array_ops.deep_copy
_IDENTITY: Callable[[Tensor], Tensor] = tf.identity


class TensorflowTensors(TensorflowLocations):
    """The mixin for tensors."""

    immutable = True

    def copy_to(self, x: Tensor, device: Device, non_blocking: bool = False) -> Tensor:
        with tf.device(self.to_native(device)):
            copy = self._copier(x, getattr(x, "dtype", None), device, tf.executing_eagerly())
            return copy(x)

    def copy_many(self, xs: Sequence[Tensor], device: Device, non_blocking: bool = False) -> Iterable[Tensor]:
        eager = tf.executing_eagerly()
        with tf.device(self.to_native(device)):  # entered once for all: 1.3 times faster than once for each
            for x in xs:
                copy = self._copier(x, getattr(x, "dtype", None), device, eager)
                yield copy(x)

    def _copier(self, x: Tensor, dtype: Any, device: Device, eager: bool) -> Callable[[Tensor], Tensor]:
        """Return a function that copies a tensor in its target's scope: usually a TensorFlow function."""
        if not eager:
            return self._traced_copier(x, device)
        if self.simulated and dtype in ON_HOST:
            copy = self._eager_copier(x, dtype, device)
            return lambda x: mark_placed(copy(x))
        return self._eager_copier(x, dtype, device)

    def _eager_copier(self, x: Tensor, dtype: Any, device: Device) -> Callable[[Tensor], Tensor]:
        if not isinstance(x, EAGER) or dtype.name not in NAMES:
            return partial(self._copy_other, device=device)
        if self.device_of(x) is not device:
            return _copy_between_simulated if self.simulated else _COPY
        if self.is_accelerator(device) and dtype.name not in _DEEP_COPY_DTYPES:
            return partial(self._copy_on_device, device=device)
        return _DEEP_COPY

    def _traced_copier(self, x: Tensor, device: Device) -> Callable[[Tensor], Tensor]:
        """Return the operator that copies when the function that is being compiled is called."""
        if in_xla():
            raise messages.tracing(self, "place", "place outside the function, or leave out jit_compile=True")
        if isinstance(x, COMPOSITES):
            return partial(self._copy_other, device=device)
        self._refuse_hosted(x, device, "place", "place")
        return _IDENTITY if self.is_accelerator(device) else _DEEP_COPY

    def _refuse_hosted(self, x: Tensor, device: Device | None, call: str, verb: str) -> None:
        """Refuse dtypes that operators leave in host memory, even in the scope of a GPU, or of None for any device."""
        if device is not CPU and tf.as_dtype(x.dtype) in ON_HOST:
            instead = f"TensorFlow's operators keep {self.dtype_name(x)} in host memory: {verb} it outside the function"
            raise messages.tracing(self, call, instead)

    def _copy_other(self, x: Tensor, device: Device) -> Tensor:
        """Copy anything other than a plain tensor of numbers, in the scope of its target."""
        if isinstance(x, COMPOSITES):
            return tf.nest.map_structure(lambda part: self.copy_to(part, device), x, expand_composites=True)
        here = self.device_of(x)
        value = tf.convert_to_tensor(x)
        if here is device:
            return self._copy_on_device(value, device)
        return self._copy_on_device(_relabel(value), device) if self.simulated else self._copy_to_device(value, device)

    def _copy_on_device(self, x: Tensor, device: Device) -> Tensor:
        """Copy a tensor to new memory on the same device, in the device's scope."""
        if x.dtype in (tf.resource, tf.variant):
            msg = f"a TensorFlow tensor of dtype {x.dtype.name} is a handle, which has no values to copy"
            raise UnsupportedError(msg, "place the object to which it refers, such as the variable")
        try:
            result = duplicate.gpu_copier(x.dtype)(x) if self.is_accelerator(device) else _DEEP_COPY(x)
        except (tf.errors.InvalidArgumentError, tf.errors.NotFoundError):  # no kernel for 4- and 8-bit dtypes
            with tf.device("/CPU:0"):
                result = tf.constant(x.numpy(), x.dtype)
        return result if self.is_in_memory_of(result, device) else self._copy_to_device(result, device)

    def _copy_to_device(self, x: Tensor, device: Device) -> Tensor:
        """Copy a tensor to another device's memory, in the scope of that device."""
        try:
            return x._copy()
        except (RuntimeError, tf.errors.OpError) as error:
            if self.is_out_of_memory(error) or x.dtype.name in NAMES:
                raise
            raise self._wrong_device_error(x, device) from error

    def is_in_memory_of(self, result: Tensor, device: Device) -> bool:
        """Return True if a tensor made in a device's scope is in its memory, as some operators leave it on the host."""
        if not isinstance(result, EAGER):
            if in_xla():
                raise refused_in_xla(self)
            self._refuse_hosted(result, device, "zeros and similar functions", "create")
            return True
        if self.device_of(result) is device:
            return True
        if self.is_accelerator(device) and result.dtype in _HANDLES:
            raise self._wrong_device_error(result, device)
        return False

    def create(self, device: Device, make: Callable[[], Tensor]) -> Tensor:
        """Return the tensor that a function makes in the scope of a device, in that device's memory.

        On a simulated GPU only the result counts: a real GPU would have shapes and bounds in host memory.
        """
        with tf.device(self.to_native(device)), LOCAL.intermediate:
            result = make()
            if not self.is_in_memory_of(result, device):
                result = result._copy()
            if self.simulated:
                count_results(result, last=True)
            return mark_placed(result)

    def _wrong_device_error(self, x: Tensor, device: Device) -> Exception:
        return UnsupportedError(
            f"TensorFlow cannot put a {x.dtype.name} tensor on {device}", "keep it on the CPU: ds.place(x, 'cpu')"
        )

    def to_numpy(self, x: Tensor, copy: bool) -> np.ndarray:
        if not copy:
            return self._view(x)
        value = x if isinstance(x, EAGER) else self._as_eager(x)
        array = value.numpy()
        return array if isinstance(array, np.ndarray) else np.asarray(array, value.dtype.as_numpy_dtype)

    def _as_eager(self, x: Tensor) -> Tensor:
        """Return the eager tensor of a variable's values; refuse values that do not have one."""
        if self.is_tracer(x):
            raise messages.tracing(self, "to_numpy", "return the tensor from the function and read it outside")
        require_dense(x, "a {} has no counterpart in NumPy", ConversionError)
        self.device_of(x)  # refuses values that are spread over devices
        return tf.convert_to_tensor(x)

    def _view(self, x: Tensor) -> np.ndarray:
        """Return a read-only array over a tensor's own memory."""
        if not isinstance(x, EAGER):
            self._as_eager(x)
        if self.device_of(x) is not CPU:
            raise messages.copy_needed(self.device_of(x), CPU)
        if not isinstance(x, EAGER):
            raise messages.cannot_share(
                "a variable", "an assignment gives it new memory, and a view would show the old values"
            )
        if x._datatype_enum() in BUFFERED:
            return np.asarray(memoryview(x))
        if np.dtype(x.dtype.as_numpy_dtype).isbuiltin != _ML_DTYPES:
            raise messages.cannot_share("this tensor", f"Python's buffer protocol does not support {x.dtype.name}")
        array = memory_view(x).reshape(x.shape)
        array.flags.writeable = False
        return array

    def from_numpy(self, array: np.ndarray, device: Device, copy: bool) -> Tensor:
        try:
            dtype = tf.as_dtype(array.dtype)
        except TypeError as error:
            raise messages.no_dtype(self, array.dtype.name) from error
        made = copy_array(array) if copy and device is CPU else None
        if made is not None:
            return made
        if not copy:
            return self._share_array(array, device)
        return self.create(device, lambda: tf.constant(array, dtype))  # copies, unlike DLPack

    def _share_array(self, array: np.ndarray, device: Device) -> Tensor:
        """Return a tensor over an array's own memory."""
        if device is not CPU:
            raise messages.copy_needed(CPU, device)
        try:
            return self.from_dlpack(array)
        except ConversionError as error:
            raise messages.cannot_share("this array", error.problem) from error

    def dtype_name(self, x: Tensor) -> str:
        name: str = getattr(x.dtype, "name", x.dtype)  # a Keras variable's dtype is text already
        return name

    def shape(self, x: Tensor) -> tuple[int, ...]:
        # The second builds a `TensorShape`, in 2.5 us (2.21).
        return x._shape_tuple() if type(x) is EAGER else shape_of(x)

    def is_writable(self, x: Tensor) -> bool:
        # A variable's memory is not writable either: TensorFlow shares it with tensors until one is assigned to.
        return False

    def nbytes(self, x: Tensor) -> int:
        if type(x) is EAGER:
            return int(x._num_elements()) * _item_bytes(x._datatype_enum())
        parts = parts_of(x)
        if parts is not None:
            return sum(self.nbytes(part) for part in parts)
        return int(prod(size or 0 for size in self.shape(x)) * tf.as_dtype(x.dtype).size)

    def synchronize(self, device: Device) -> None:
        if self.is_accelerator(device) and self.started():
            tf.test.experimental.sync_devices()


def _copy_between_simulated(x: Tensor) -> Tensor:
    """Copy a tensor of another simulated device, in the scope of the target."""
    return _DEEP_COPY(_relabel(x))


def mark_placed(x: Tensor) -> Tensor:
    """Return a tensor that devshim put on its device, marked if an operator's result of its dtype is on the host."""
    if isinstance(x, EAGER) and x.dtype in ON_HOST:
        setattr(x, PLACED, True)
    return x


def _relabel(x: Tensor) -> Tensor:
    """Return the same memory under the name of the simulated device whose scope is active."""
    with LOCAL.intermediate:
        return _COPY(x)


def _deep_copy_gradient(op: Any, gradient: Tensor) -> Tensor:
    """Return the gradient of a copy, which is the incoming gradient, moved to the copied tensor's device."""
    source = op.inputs[0]
    where = getattr(source, "backing_device", None) or source.device
    if not where:
        return gradient
    with tf.device(where):
        return tf.identity(gradient)


with suppress(KeyError):  # if other code registered one already: a copy has only one possible gradient
    tf.RegisterGradient("DeepCopy")(_deep_copy_gradient)
