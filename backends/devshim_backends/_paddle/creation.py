"""New tensors on exactly the device asked for, and the dtypes they are made of.

Requirements this module answers:

* No call looks at or touches Paddle's process-wide device: a place is handed to the C++ layer each time.
  ``paddle.to_tensor([1.0], place=...)`` does look at it where there is one value (3.3: it calls ``paddle.full``).
* The dtypes are those that Paddle computes with.  ``paddle.uint16``, ``uint32`` and ``uint64`` (3.x) are names
  without kernels: of a tensor of theirs not even ``clone`` works, and NumPy's uint16 is read as bfloat16.
* One meaning for every dtype: Paddle has no ``arange``, ``linspace`` or ``eye`` for bool, the small integers and
  floats, or complex; it adds a float step up, so that errors add up too.  NumPy computes them here, once for all.
* A plug-in that lacks a kernel has the host's, and then the result stays on the host: it is copied from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import paddle
from paddle import _C_ops

from devshim.contract.backend import Backend
from devshim.devices.device import CPU
from devshim.errors import ConversionError, messages

if TYPE_CHECKING:
    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device

NUMPY = {
    name: np.dtype(name)
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    )
}
"""The dtypes that Paddle computes with and NumPy has, by name."""

PADDLE: dict[str, Any] = {name: getattr(paddle, name) for name in (*NUMPY, "bfloat16")}
"""Paddle's dtype for every name."""

SMALL: dict[str, Any] = {
    name: getattr(paddle, name) for name in ("float8_e4m3fn", "float8_e5m2") if hasattr(paddle, name)
}
"""Dtypes that Paddle stores, copies and casts, and hardly computes with."""

NAMES: dict[Any, str] = {dtype: name for name, dtype in PADDLE.items()}
"""The name of each of them; Paddle's dtypes, unlike its places, can be keys."""

EAGER = paddle.base.core.eager.Tensor
"""A new tensor with an array's values on a place, or over its memory; NumPy's uint16 arrives as bfloat16."""

NEW: dict[str, Any] = {"persistable": False, "name": None, "stop_gradient": True}
"""What every new tensor is."""


class PaddleCreation(Backend):
    """The room of creation."""

    def dtype(self, name: str) -> Any:
        found = PADDLE.get(name) or SMALL.get(name)
        if found is None:
            raise messages.no_dtype(self, name, "int64" if name.startswith("uint") else "float32")
        return found

    def is_dtype(self, value: object) -> bool:
        return isinstance(value, paddle.dtype)

    def asarray(self, values: object, dtype: Any | None, device: Device) -> Tensor:
        try:
            array = np.array(values)
            default = _default_for(array, paddle.get_default_dtype())
            if default is not None and dtype is not None:  # again, for NumPy's check of the dtype's range
                array = np.array(values, dtype=NUMPY.get(self._name(dtype), NUMPY["float32"]))
        except (OverflowError, ValueError, TypeError) as error:
            raise ConversionError(
                f"PaddlePaddle cannot read these values: {str(error)[:200]}",
                "pass a number, or nested sequences of numbers whose rows are equally long, within the dtype's range",
            ) from error
        if default is None:
            raise ConversionError(
                f"these values hold {array.dtype.name}, and PaddlePaddle has no such dtype",
                "pass numbers, or nested sequences of numbers; integers from -2**63 to 2**63 - 1",
            )
        return self._read(array, self._name(dtype or default), device)

    def cast(self, x: Tensor, dtype: Any) -> Tensor:
        if self.is_tracer(x):
            return x.astype(dtype)
        with self.scope(self.device_of(x)):
            return x.astype(dtype)

    def empty(self, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        wanted, place = PADDLE[self._name(dtype or paddle.get_default_dtype())], self.to_native(device)
        if not paddle.in_dynamic_mode():
            return self._constant(shape, 0, wanted)
        made = _C_ops.empty(list(shape), wanted, place)
        return made if device is CPU or not made.place.is_cpu_place() else made._copy_to(place, True)

    def full(self, shape: tuple[int, ...], value: complex, dtype: Any | None, device: Device) -> Tensor:
        default = _default_for(np.array(value), paddle.get_default_dtype()) or "float32"
        wanted, place = PADDLE[self._name(dtype or default)], self.to_native(device)
        if not paddle.in_dynamic_mode():
            return self._constant(shape, value, wanted)
        made = _C_ops.full(list(shape), value, wanted, place)
        return made if device is CPU or not made.place.is_cpu_place() else made._copy_to(place, True)

    def zeros(self, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        wanted, place = PADDLE[self._name(dtype or paddle.get_default_dtype())], self.to_native(device)
        if not paddle.in_dynamic_mode():
            return self._constant(shape, 0, wanted)
        made = _C_ops.full(list(shape), 0, wanted, place)
        return made if device is CPU or not made.place.is_cpu_place() else made._copy_to(place, True)

    def ones(self, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        wanted, place = PADDLE[self._name(dtype or paddle.get_default_dtype())], self.to_native(device)
        if not paddle.in_dynamic_mode():
            return self._constant(shape, 1, wanted)
        made = _C_ops.full(list(shape), 1, wanted, place)
        return made if device is CPU or not made.place.is_cpu_place() else made._copy_to(place, True)

    def arange(self, start: float, stop: float, step: float, dtype: Any | None, device: Device) -> Tensor:
        array = np.arange(start, stop, step)
        default = "int64" if array.dtype.kind == "i" else paddle.get_default_dtype()
        return self._read(array, self._name(dtype or default), device)

    def linspace(
        self, start: float, stop: float, num: int, dtype: Any | None, device: Device, endpoint: bool
    ) -> Tensor:
        array = np.linspace(start, stop, num, endpoint=endpoint)
        return self._read(array, self._name(dtype or paddle.get_default_dtype()), device)

    def eye(self, n_rows: int, n_cols: int, k: int, dtype: Any | None, device: Device) -> Tensor:
        array = np.eye(n_rows, n_cols, k, dtype="int8")
        return self._read(array, self._name(dtype or paddle.get_default_dtype()), device)

    def _read(self, array: np.ndarray, name: str, device: Device) -> Tensor:
        require_dynamic(self, "asarray")
        ready = _ready(array, name)
        return EAGER(value=ready, place=self.to_native(device), zero_copy=False, **NEW)

    def _constant(self, shape: tuple[int, ...], value: complex, dtype: Any) -> Tensor:
        """A constant of the program being built: it has a device only when the program runs."""
        if any(self.count(kind) for kind in self.kinds()):
            raise messages.tracing(self, "zeros", "make the tensor outside, and pass it in")
        return paddle.full(list(shape), value, dtype)

    def _name(self, dtype: Any) -> str:
        """The name of a dtype that Paddle computes with; a name stands for itself."""
        found: str | None = dtype if dtype in PADDLE else NAMES.get(dtype)
        if found is None:
            raise messages.no_dtype(self, shown(dtype), "int64")
        return found


def require_dynamic(backend: Backend, call: str) -> None:
    """Refuse to make a tensor of values while a program is being built: Paddle's own way ends the process (3.3)."""
    if not paddle.in_dynamic_mode():
        raise messages.tracing(backend, call, "make the tensor outside, and pass it in")


def shown(dtype: Any) -> str:
    """Return the name of a dtype that has none here; Paddle 3.x prints its uint16 as bfloat16."""
    name = str(dtype).removeprefix("paddle.")
    return "uint16" if name == "bfloat16" else name


def _ready(array: np.ndarray, name: str) -> np.ndarray:
    """An array with the values of another in the dtype of a name, as Paddle reads it: bfloat16 as its bits."""
    if name in NUMPY:
        return array.astype(NUMPY[name], copy=False)
    wide = EAGER(value=array.astype("float32", copy=False), place=paddle.CPUPlace(), zero_copy=False, **NEW)
    return np.asarray(_C_ops.cast(wide, PADDLE[name]).numpy())


def _default_for(array: np.ndarray, default: str) -> str | None:
    """The name of Paddle's dtype for Python values that NumPy has read, by the default float's, or None: no numbers."""
    complexes = "complex128" if default == "float64" else "complex64"
    return {"b": "bool", "i": "int64", "f": default, "c": complexes}.get(array.dtype.kind)
