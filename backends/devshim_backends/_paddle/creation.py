"""Creating tensors on exactly the requested device, and the dtypes that they can have.

Requirements that this module meets:

* No call reads or changes Paddle's process-wide device: a place is passed to the C++ layer each time.
  ``paddle.to_tensor([1.0], place=...)`` does read it for a single value (3.3: it calls ``paddle.full``).
* The dtypes are those that Paddle computes with. ``paddle.uint16``, ``uint32`` and ``uint64`` (3.x) are names
  without kernels: not even ``clone`` works on these tensors, and NumPy's uint16 is read as bfloat16.
* Every dtype behaves the same: Paddle has no ``arange``, ``linspace`` or ``eye`` for bool, the small integers and
  floats, or complex, and it accumulates a float step, so that errors add up. Here NumPy computes all of them.
* A plug-in that lacks a kernel uses the host's, and the result stays on the host: it is copied from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import paddle
from paddle import _C_ops

from devshim.contract.backend import Backend
from devshim.devices.device import CPU
from devshim.devices.ranges import read_numbers, require_fit, require_values_fit
from devshim.errors import ConversionError, DevshimError, messages
from devshim_backends._paddle.devices import device_when_tracing

if TYPE_CHECKING:
    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device

NUMPY_DTYPES = {
    name: np.dtype(name)
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    )
}
"""The dtypes that Paddle computes with and that NumPy has, by name."""

PADDLE_DTYPES: dict[str, Any] = {name: getattr(paddle, name) for name in (*NUMPY_DTYPES, "bfloat16")}
"""The name of a dtype -> Paddle's dtype."""

FLOAT8: dict[str, Any] = {
    name: getattr(paddle, name) for name in ("float8_e4m3fn", "float8_e5m2") if hasattr(paddle, name)
}
"""Dtypes that Paddle stores, copies and casts, but hardly computes with."""

DTYPE_NAMES: dict[Any, str] = {dtype: name for name, dtype in PADDLE_DTYPES.items()}
"""Paddle's dtype -> its name; Paddle's dtypes, unlike its places, can be keys."""

EagerTensor = paddle.base.core.eager.Tensor
"""The class of tensors; it copies an array to a place or shares its memory, and reads NumPy's uint16 as bfloat16."""

NEW_ATTRIBUTES: dict[str, Any] = {"persistable": False, "name": None, "stop_gradient": True}
"""The attributes of every new tensor."""

_GIVE_LIKE = "give it like=x, or make the tensor outside, and pass it in"


class PaddleCreation(Backend):
    """The mixin that creates tensors."""

    def dtype(self, name: str) -> Any:
        found = PADDLE_DTYPES.get(name) or FLOAT8.get(name)
        if found is None:
            raise messages.no_dtype(self, name, "int64" if name.startswith("uint") else "float32")
        return found

    def is_dtype(self, value: object) -> bool:
        return isinstance(value, paddle.dtype)

    def asarray(self, values: object, dtype: Any | None, device: Device) -> Tensor:
        try:
            array = read_numbers(values, None if dtype is None else self._dtype_name(dtype))
            default = _default_dtype(array, paddle.get_default_dtype())
            if dtype is not None and (default is not None or array.dtype.kind == "u"):
                default = self._dtype_name(dtype)
                require_values_fit(values, default, array)
                # A second time: NumPy reads numbers in their dtype.
                array = np.array(values, dtype=NUMPY_DTYPES.get(default, NUMPY_DTYPES["float32"]))
        except DevshimError:
            raise
        except (OverflowError, ValueError, TypeError) as error:
            msg = f"PaddlePaddle cannot read these values: {str(error)[:200]}"
            raise ConversionError(
                msg,
                "pass a number, or nested sequences of numbers whose rows are equally long, within the dtype's range",
            ) from error
        if default is None:
            msg = f"these values have the dtype {array.dtype.name}, which PaddlePaddle does not have"
            raise ConversionError(
                msg,
                "pass numbers, or nested sequences of numbers whose rows are equally long",
            )
        return self._from_array(array, default, device)

    def cast(self, x: Tensor, dtype: Any) -> Tensor:
        if self.is_tracer(x):
            return x.astype(dtype)
        with self.scope(self.device_of(x)):
            return x.astype(dtype)

    def empty(self, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        native, place = PADDLE_DTYPES[self._dtype_name(dtype or paddle.get_default_dtype())], self.to_native(device)
        if not paddle.in_dynamic_mode():
            return self._make_constant(shape, 0, native)
        made = _C_ops.empty(list(shape), native, place)
        return made if device is CPU or not made.place.is_cpu_place() else made._copy_to(place, True)

    def full(self, shape: tuple[int, ...], value: complex, dtype: Any | None, device: Device) -> Tensor:
        if type(value) is int and not -(2**63) <= value < 2**63:
            require_fit(value, self._dtype_name(dtype or "int64"))
            value = float(value)  # Paddle's operator reads integers as int64
        default = _default_dtype(np.array(value), paddle.get_default_dtype()) or "float32"
        return self._fill(shape, value, dtype or default, device)

    def zeros(self, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        return self._fill(shape, 0, dtype or paddle.get_default_dtype(), device)

    def ones(self, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        return self._fill(shape, 1, dtype or paddle.get_default_dtype(), device)

    def _fill(self, shape: tuple[int, ...], value: complex, dtype: Any, device: Device) -> Tensor:
        native, place = PADDLE_DTYPES[self._dtype_name(dtype)], self.to_native(device)
        if not paddle.in_dynamic_mode():
            return self._make_constant(shape, value, native)
        made = _C_ops.full(list(shape), value, native, place)
        return made if device is CPU or not made.place.is_cpu_place() else made._copy_to(place, True)

    def arange(self, start: float, stop: float, step: float, dtype: Any | None, device: Device) -> Tensor:
        array = np.arange(start, stop, step)
        default = "int64" if array.dtype.kind == "i" else paddle.get_default_dtype()
        return self._from_array(array, self._dtype_name(dtype or default), device)

    def linspace(
        self, start: float, stop: float, num: int, dtype: Any | None, device: Device, endpoint: bool
    ) -> Tensor:
        array = np.linspace(start, stop, num, endpoint=endpoint)
        return self._from_array(array, self._dtype_name(dtype or paddle.get_default_dtype()), device)

    def eye(self, n_rows: int, n_cols: int, k: int, dtype: Any | None, device: Device) -> Tensor:
        array = np.eye(n_rows, n_cols, k, dtype="int8")
        return self._from_array(array, self._dtype_name(dtype or paddle.get_default_dtype()), device)

    def create_beside(self, x: Tensor | None, call: str, args: tuple[Any, ...], dtype: Any) -> Tensor:
        name = None if dtype is None else self._dtype_name(dtype)
        kind, _, like = call.partition("_")
        if kind in ("full", "zeros", "ones", "empty"):
            # `paddle.zeros_like` reads `x.place`, and Paddle warns that a value in a program does not have it (3.3).
            shape = list(args[0] if x is None or not like else x.shape)
            value = args[-1] if kind == "full" else int(kind == "ones")
            default = _default_dtype(np.array(value), "float32") if kind == "full" else paddle.get_default_dtype()
            return paddle.full(paddle.shape(x) if min(shape, default=0) < 0 else shape, value, name or default)
        values = read_numbers(args[0], name) if call == "asarray" else getattr(np, call)(*args)
        wanted = name or _default_dtype(values, paddle.get_default_dtype()) or "float32"
        return _assign(values, wanted)

    def _from_array(self, array: np.ndarray, name: str, device: Device) -> Tensor:
        if not paddle.in_dynamic_mode():
            device_when_tracing(self, "asarray", _GIVE_LIKE)
            return _assign(array, name)
        ready = _convert_array(array, name)
        return EagerTensor(value=ready, place=self.to_native(device), zero_copy=False, **NEW_ATTRIBUTES)

    def _make_constant(self, shape: tuple[int, ...], value: complex, dtype: Any) -> Tensor:
        """Return a constant of the program being built: it has a device only when the program runs."""
        device_when_tracing(self, "zeros", _GIVE_LIKE)
        return paddle.full(list(shape), value, dtype)

    def _dtype_name(self, dtype: Any) -> str:
        """Return the name of a dtype that Paddle computes with; a name is returned unchanged."""
        found: str | None = dtype if dtype in PADDLE_DTYPES else DTYPE_NAMES.get(dtype)
        if found is None:
            raise messages.no_dtype(self, unsupported_name(dtype), "int64")
        return found


def _assign(array: np.ndarray, name: str) -> Tensor:
    """Return numbers as a constant of the program being built."""
    return paddle.assign(array.astype(NUMPY_DTYPES.get(name, "float32"))).astype(name)


def make_constant(backend: Backend, array: np.ndarray, name: str, copy: bool) -> Tensor:
    """Return an array as a constant of the program being built.

    Paddle's own constructor ends the process then (3.3), as do operators on arrays:
    https://github.com/PaddlePaddle/Paddle/pull/71216.
    """
    if not copy:
        require_dynamic(backend, "from_numpy")
    device_when_tracing(backend, "from_numpy", _GIVE_LIKE)
    return _assign(array, name)


def require_dynamic(backend: Backend, call: str) -> None:
    """Refuse to make a tensor of values while a program is being built: Paddle itself crashes then (3.3)."""
    if not paddle.in_dynamic_mode():
        raise messages.tracing(backend, call, "make the tensor outside, and pass it in")


def unsupported_name(dtype: Any) -> str:
    """Return the name of a dtype that devshim does not support; Paddle 3.x prints its uint16 as bfloat16."""
    name = str(dtype).removeprefix("paddle.")
    return "uint16" if name == "bfloat16" else name


def _convert_array(array: np.ndarray, name: str) -> np.ndarray:
    """Return an array cast to the dtype of that name, in the form that Paddle reads: bfloat16 as its bits."""
    if name in NUMPY_DTYPES:
        return array.astype(NUMPY_DTYPES[name], copy=False)
    wide = EagerTensor(
        value=array.astype("float32", copy=False), place=paddle.CPUPlace(), zero_copy=False, **NEW_ATTRIBUTES
    )
    return np.asarray(_C_ops.cast(wide, PADDLE_DTYPES[name]).numpy())


def _default_dtype(array: np.ndarray, default: str) -> str | None:
    """Return the name of the dtype for Python values that NumPy has read; None if they are not numbers.

    Args:
        array: The values.
        default: The name of the default float dtype in Paddle.
    """
    complexes = "complex128" if default == "float64" else "complex64"
    return {"b": "bool", "i": "int64", "f": default, "c": complexes}.get(array.dtype.kind)
