"""TensorFlow's tensors: where they are, copies of them, and host memory.

Requirements this module answers:

* The device is that of the memory.  ``x.device`` says where an operator ran; int32 and shape tensors of a card,
  and the results of a ``tf.function``, are elsewhere (tensorflow/tensorflow#34071): ``backing_device`` tells.
* A copy is new memory always.  ``tf.identity`` shares the buffer on one device and between logical CPUs, which
  shows through DLPack; ``DeepCopy`` does not, and gets the gradient that TensorFlow leaves out.
* int32 reaches a card.  Operators keep it in host memory even in a card's scope; a tensor's own copy does not.
* A variable that must move becomes a tensor, through which gradients flow to the variable.
* In a ``tf.function`` a tensor has a device where an operator was given one; an argument has none, as one trace
  serves calls from every device.
"""

from __future__ import annotations

from contextlib import suppress
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from devshim import _refusals
from devshim._dtypes import DTYPES
from devshim.device import CPU
from devshim.errors import ConversionError, UnsupportedError
from devshim_backends._tensorflow.devices import PLACES, TensorflowDevices
from devshim_backends._tensorflow.scopes import in_xla

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devshim.backend import Tensor
    from devshim.device import Device

COMPOSITES = (tf.RaggedTensor, tf.SparseTensor, tf.IndexedSlices)
"""Tensors that are made of several; they are moved part by part."""

ON_HOST = frozenset({tf.int32, tf.string, tf.resource, tf.variant})
"""Dtypes that TensorFlow's operators keep in host memory even on a card."""

NAMES = frozenset(DTYPES)
"""The array-API dtypes, which TensorFlow names alike."""

_ARRAYS = (tf.Tensor, tf.Variable, tf.__internal__.types.Tensor, *COMPOSITES)
"""What counts as a tensor; the third is the root of distributed variables, and of Keras' own on this backend."""


class TensorflowTensors(TensorflowDevices):
    """The room of tensors."""

    immutable = True

    def is_tensor(self, cls: type) -> bool:
        return issubclass(cls, _ARRAYS)

    def is_model(self, cls: type) -> bool:
        if issubclass(cls, tf.Module):
            return True
        # On its other backends Keras' classes have no base of TensorFlow's, and are not ours.
        roots = {base.__module__.partition(".")[0] for base in cls.__mro__}
        names = {base.__name__ for base in cls.__mro__ if base.__module__.startswith(("keras.", "tf_keras."))}
        return "tensorflow" in roots and not names.isdisjoint({"Layer", "Optimizer", "BaseOptimizer"})

    def is_tracer(self, x: Tensor) -> bool:
        return bool(tf.is_symbolic_tensor(x))

    def device_of(self, x: Tensor) -> Device:
        try:
            return PLACES[x.backing_device]
        except (AttributeError, KeyError):
            return self._rare_device_of(x)

    def _rare_device_of(self, x: Tensor) -> Device:
        """Everything but an eager tensor on a device met before."""
        parts = _parts(x)
        if parts is not None:
            return self._shared_device(x, parts)
        if isinstance(x, tf.__internal__.EagerTensor):
            return self._known(x, x.backing_device)
        if self.is_tracer(x):
            return self._planned_device(x)
        # A tf.Variable, or a Keras one, which holds one.
        variable = x if isinstance(x, tf.Variable) else x.value
        found = self._known(variable, variable.device)
        if self.is_card(found) and variable.dtype in ON_HOST:
            return self.device_of(variable.read_value())
        return found

    def _shared_device(self, x: Tensor, parts: Sequence[Tensor]) -> Device:
        devices = {self.device_of(part) for part in parts}
        if len(devices) != 1:
            places = ", ".join(map(str, sorted(devices))) or "no device"
            raise UnsupportedError(
                f"the parts of this {type(x).__name__} are on {places}, so it is on no single one",
                "ask for the device of each part",
            )
        return devices.pop()

    def _known(self, x: Tensor, name: str) -> Device:
        found = self.named(name)
        if found is not None:
            return found
        if not tf.executing_eagerly():
            raise self._untold()
        raise UnsupportedError(f"TensorFlow has this {type(x).__name__} on {name!r}, which devshim does not know")

    def _planned_device(self, x: Tensor) -> Device:
        """Where a tensor of a compiled function will be: its operator's device, or that of what it stands for."""
        for outside, inside in getattr(x.graph, "captures", ()):
            if inside is x and outside.dtype != tf.resource:
                return self.device_of(outside)
        found = self.named(x.device) if x.device else None
        # Soft placement, and operators that keep int32 on the host, make a card's name no promise.
        if found is None or (self.is_card(found) and (found.index >= self.count(found.kind) or x.dtype in ON_HOST)):
            raise self._untold()
        return found

    def _untold(self) -> Exception:
        return _refusals.tracing(
            self, "device_of", "place the tensor on a device inside the function first, or ask outside of it"
        )

    def copy_to(self, x: Tensor, device: Device, non_blocking: bool = False) -> Tensor:
        return self.copy_many((x,), device, non_blocking)[0]

    def copy_many(self, xs: Sequence[Tensor], device: Device, non_blocking: bool = False) -> Sequence[Tensor]:
        if in_xla():
            raise _refusals.tracing(self, "place", "place outside the function, or leave out jit_compile=True")
        with tf.device(self.to_native(device)):  # once around many: 1.3 times faster than once around each
            return [self._copied(x, device) for x in xs]

    def _copied(self, x: Tensor, device: Device) -> Tensor:
        """A copy of a tensor, in the scope of the device it goes to."""
        if isinstance(x, COMPOSITES):
            return tf.nest.map_structure(lambda part: self._copied(part, device), x, expand_composites=True)
        if not tf.executing_eagerly():
            return self._copied_later(x, device)
        here = self.device_of(x)
        value = tf.convert_to_tensor(x)
        if here is device or self.simulated:
            return self._duplicated(value, device)
        return self._carried(value, device)

    def _copied_later(self, x: Tensor, device: Device) -> Tensor:
        """The operator that copies when the function being compiled is called."""
        value = tf.convert_to_tensor(x)
        if not self.is_card(device):
            return tf.raw_ops.DeepCopy(x=value)
        if value.dtype in ON_HOST:
            instead = f"TensorFlow's operators keep {value.dtype.name} in host memory: place it outside the function"
            raise _refusals.tracing(self, "place", instead)
        return tf.identity(value)

    def _duplicated(self, x: Tensor, device: Device) -> Tensor:
        """New memory of the same kind, in the scope of the device."""
        if x.dtype in (tf.resource, tf.variant):
            raise UnsupportedError(
                f"a TensorFlow tensor of dtype {x.dtype.name} is a handle, and has no values to copy"
            )
        try:
            made = tf.raw_ops.DeepCopy(x=x)
        except (tf.errors.InvalidArgumentError, tf.errors.NotFoundError):  # no such kernel: 4- and 8-bit dtypes
            with tf.device("/CPU:0"):
                made = tf.constant(x.numpy(), x.dtype)
        return self.settled(made, device)

    def _carried(self, x: Tensor, device: Device) -> Tensor:
        """A copy in another device's memory, in the scope of that device."""
        try:
            return x._copy()
        except (RuntimeError, tf.errors.OpError) as error:
            if self.is_out_of_memory(error) or x.dtype.name in NAMES:
                raise
            raise UnsupportedError(f"TensorFlow cannot have a {x.dtype.name} tensor on {device}") from error

    def settled(self, x: Tensor, device: Device) -> Tensor:
        """A tensor just made in a device's scope, in that device's memory even where the operator left it elsewhere."""
        if not tf.executing_eagerly() or self.device_of(x) is device:
            return x
        with tf.device(self.to_native(device)):
            return self._carried(x, device)

    def to_numpy(self, x: Tensor, copy: bool) -> np.ndarray:
        if self.is_tracer(x):
            raise _refusals.tracing(self, "to_numpy", "return the tensor from the function and read it outside")
        self._require_dense(x, "NumPy")
        if not copy:
            return self._viewed(x)
        value = tf.convert_to_tensor(x).numpy()
        array: np.ndarray = value if isinstance(value, np.ndarray) else np.asarray(value, _numpy_dtype(x))
        return array

    def _viewed(self, x: Tensor) -> np.ndarray:
        """A read-only array over a tensor's own memory."""
        if self.device_of(x) is not CPU:
            raise _refusals.copy_needed(self.device_of(x), CPU)
        if not isinstance(x, tf.Tensor):
            raise _refusals.cannot_share("a variable", "its values are replaced as a whole, and a view would miss that")
        bits = tf.bitcast(x, tf.uint16) if x.dtype == tf.bfloat16 else x  # Python's buffers know no bfloat16
        try:
            array = np.asarray(memoryview(bits))
        except (TypeError, ValueError, BufferError) as error:
            raise _refusals.cannot_share("this tensor", f"NumPy has no buffer of {x.dtype.name}") from error
        return array.view(_numpy_dtype(x)) if bits is not x else array

    def from_numpy(self, array: np.ndarray, device: Device, copy: bool) -> Tensor:
        try:
            dtype = tf.as_dtype(array.dtype)
        except TypeError as error:
            raise _refusals.no_dtype(self, array.dtype.name) from error
        if not copy:
            return self._over(array, device)
        with self.scope(device):
            return self.settled(tf.constant(array, dtype), device)  # copies, unlike DLPack

    def _over(self, array: np.ndarray, device: Device) -> Tensor:
        """A tensor over an array's own memory."""
        if device is not CPU:
            raise _refusals.copy_needed(CPU, device)
        try:
            return self.from_dlpack(array)
        except ConversionError as error:
            raise _refusals.cannot_share("this array", error.problem) from error

    def dtype_name(self, x: Tensor) -> str:
        name: str = getattr(x.dtype, "name", x.dtype)  # a Keras variable's dtype is text already
        return name

    def shape(self, x: Tensor) -> tuple[int, ...]:
        return tuple(x.shape)

    def is_writable(self, x: Tensor) -> bool:
        # Not a variable's memory either: TensorFlow shares it with tensors until one of them is assigned to.
        return False

    def nbytes(self, x: Tensor) -> int:
        parts = _parts(x)
        if parts is not None:
            return sum(self.nbytes(part) for part in parts)
        return int(prod(size or 0 for size in x.shape) * tf.as_dtype(x.dtype).size)

    def synchronize(self, device: Device) -> None:
        if self.is_card(device) and self.started():
            tf.test.experimental.sync_devices()

    def _require_dense(self, x: Tensor, whom: str) -> None:
        """Refuse what is no single block of numbers, with the call that makes it one."""
        if isinstance(x, COMPOSITES):
            instead = {"RaggedTensor": "x.to_tensor()", "SparseTensor": "tf.sparse.to_dense(x)"}
            call = instead.get(type(x).__name__, "tf.convert_to_tensor(x)")
            raise ConversionError(f"a {type(x).__name__} has no counterpart in {whom}", f"call {call} first")
        self.device_of(x)  # refuses what is spread over devices


def _deep_copy_gradient(op: Any, gradient: Tensor) -> Tensor:
    """The gradient of a copy is the gradient, brought back to where the copied tensor is."""
    source = op.inputs[0]
    where = getattr(source, "backing_device", None) or source.device
    if not where:
        return gradient
    with tf.device(where):
        return tf.identity(gradient)


with suppress(KeyError):  # if somebody else gave it one: the gradient of a copy can only be this
    tf.RegisterGradient("DeepCopy")(_deep_copy_gradient)


def _parts(x: Tensor) -> Sequence[Tensor] | None:
    """The tensors a composite or distributed value is made of, or None for a plain one."""
    if isinstance(x, COMPOSITES):
        flat: Sequence[Tensor] = tf.nest.flatten(x, expand_composites=True)
        return flat
    if isinstance(x, tf.distribute.DistributedValues):
        values: Sequence[Tensor] = x.values
        return values
    return None


def _numpy_dtype(x: Tensor) -> Any:
    return tf.as_dtype(x.dtype).as_numpy_dtype
