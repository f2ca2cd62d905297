"""Creating MXNet arrays on a device, always with the NumPy interface (``mx.np.ndarray``).

Requirements that this module meets:

* A requested dtype is kept. ``mx.np.array`` turns every list into float32 and, in 2.0, NumPy's int64 and float64 too.
  ``mx.np.full`` passes integers through a double (2**53 + 1 is lost in 1.9). So NumPy creates values that have a
  separate dtype, and they are sent with that dtype given explicitly: they arrive bit for bit.
* ``eye`` and ``arange`` do not support bool, and no operator supports bfloat16: NumPy creates those too.
* Without a dtype, integers stay integers and booleans stay booleans, as in the other adapters: ``mx.np.array([1])``
  and, in 1.9, ``mx.np.full((2,), 1)`` would be float32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mxnet as mx
import numpy as np

from devshim.devices.ranges import nearest_bfloat16, read_numbers, require_fit, require_values_fit
from devshim.errors import messages
from devshim_backends._mxnet.internals import bfloat16
from devshim_backends._mxnet.internals.filling import full
from devshim_backends._mxnet.internals.native import BFLOAT16, CODES, DEVICE_ARGUMENT, allocate, numpy_shapes
from devshim_backends._mxnet.tensors import MxnetTensors
from devshim_backends._mxnet.tracing import is_deferred, require_recordable, require_symbolic

if TYPE_CHECKING:
    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device

_OPERATOR_DTYPES = frozenset(
    np.dtype(name) for name in ("float16", "float32", "float64", "int32", "int64", "uint8", "int8")
)
"""The dtypes that MXNet's creation operators accept in both releases."""
_DTYPES: dict[str, Any] = {name: BFLOAT16 if name == "bfloat16" else np.dtype(name) for name in CODES}
_IS_DTYPE = frozenset(_DTYPES.values()) | {kind.type for name, kind in _DTYPES.items() if name != "bfloat16"}


class MxnetCreation(MxnetTensors):
    """The mixin that creates arrays."""

    def dtype(self, name: str) -> Any:
        dtype = _DTYPES.get(name)
        if dtype is None:
            raise messages.no_dtype(
                self, name, "int32" if name[-2:] in ("16", "32", "64") and "int" in name else "float32"
            )
        return dtype

    def is_dtype(self, value: object) -> bool:
        try:
            return value in _IS_DTYPE
        except TypeError:  # not hashable, so not a dtype
            return False

    def asarray(self, values: object, dtype: Any | None, device: Device) -> Tensor:
        name = None if dtype is None else "bfloat16" if is_bfloat16(dtype) else np.dtype(dtype).name
        array = read_numbers(values, name)
        kind = array.dtype
        if kind.kind in "OUS":  # NumPy before 1.24 also makes objects of rows that are not equally long
            msg = f"NumPy makes an array of dtype {kind.name} from them"
            raise ValueError(msg)
        if name is not None and kind.kind == "c":
            require_values_fit(values, name, array)
        if kind.kind not in "biuf":
            raise messages.no_dtype(self, kind.name)
        if name is not None and name != "bfloat16":
            require_values_fit(values, name, array)
        if dtype is None and kind.kind != "f":
            dtype = _default_dtype(kind)
        if array.ndim == 0 and is_deferred():  # a graph cannot contain an array of values
            return self.full((), array.item(), dtype, device)
        options = self.options(dtype, device)
        if dtype is not None:
            values = np.asarray(values, options["dtype"])
        with numpy_shapes():
            return self._from_values(values, dtype, options)

    def options(self, dtype: Any | None, device: Device) -> dict[str, Any]:
        """Return the arguments for the device and the dtype; for bfloat16 the dtype is float32 (see `round_to`)."""
        require_symbolic(self)
        if dtype is None:
            return {DEVICE_ARGUMENT: self.to_native(device)}
        return {
            DEVICE_ARGUMENT: self.to_native(device),
            "dtype": "float32" if is_bfloat16(dtype) else np.dtype(dtype).name,
        }

    def _from_values(self, values: Any, dtype: Any | None, options: dict[str, Any]) -> Tensor:
        """Return an array of NumPy or Python values, in the requested dtype."""
        require_recordable(self)
        if dtype is None or not is_bfloat16(dtype):
            return mx.np.array(values, **options)
        return bfloat16.cut(mx.np.array(nearest_bfloat16(values), **options))

    def cast(self, x: Tensor, dtype: Any) -> Tensor:
        with numpy_shapes():
            if is_bfloat16(dtype):
                return bfloat16.cast(x)
            name = np.dtype(dtype).name
            return bfloat16.widen(x).astype(name, copy=False) if bfloat16.among((x,)) else x.astype(name)

    def round_to(self, x: Tensor, dtype: Any | None) -> Tensor:
        """Return an array in the requested dtype: unchanged, but bfloat16 is rounded from float32 on the device."""
        return x if dtype is None or not is_bfloat16(dtype) else self.cast(x, dtype)

    def empty(self, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        if is_deferred():  # a graph cannot contain an array of values
            return self.zeros(shape, dtype, device)
        require_recordable(self)
        native = self.to_native(device)
        with numpy_shapes():
            if dtype is None:
                return mx.np.empty(shape, **{DEVICE_ARGUMENT: native})
            return mx.np.ndarray(allocate(shape, native, False, np.dtype(dtype)))

    def full(self, shape: tuple[int, ...], value: complex, dtype: Any | None, device: Device) -> Tensor:
        if isinstance(value, complex):
            raise messages.no_dtype(self, "complex64")
        if dtype is None and isinstance(value, int):
            dtype = _default_dtype(np.asarray(value).dtype)
            require_fit(value, dtype.name)
        options = self.options(dtype, device)
        exact = not isinstance(value, int) or abs(value) < 2**53
        with numpy_shapes():
            if exact and _has_operator(dtype):
                return full(shape, value, **options)
            return self._from_values(np.full(shape, value, options["dtype"]), dtype, options)

    def zeros(self, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        return self._constant("zeros", shape, dtype, device)

    def ones(self, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        return self._constant("ones", shape, dtype, device)

    def _constant(self, name: str, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        """Return an array of zeros or ones, by the function of that name: MXNet's, if it supports the dtype."""
        options = self.options(dtype, device)
        with numpy_shapes():
            if _has_operator(dtype):
                return getattr(mx.np, name)(shape, **options)
            return self._from_values(getattr(np, name)(shape, options["dtype"]), dtype, options)

    def arange(self, start: float, stop: float, step: float, dtype: Any | None, device: Device) -> Tensor:
        if dtype is None and all(isinstance(bound, int) for bound in (start, stop, step)):
            dtype = np.dtype(np.int64)
        options = self.options(dtype, device)
        with numpy_shapes():
            if _is_floating(dtype):
                return mx.np.arange(start, stop, step, **options)
            values = np.arange(start, stop, step).astype(options["dtype"])
            return self._from_values(values, dtype, options)

    def linspace(
        self, start: float, stop: float, num: int, dtype: Any | None, device: Device, endpoint: bool
    ) -> Tensor:
        options = self.options(dtype, device)
        with numpy_shapes():
            if _is_floating(dtype):
                return mx.np.linspace(start, stop, num, endpoint=endpoint, **options)
            values = np.linspace(start, stop, num, endpoint).astype(options["dtype"])
            return self._from_values(values, dtype, options)

    def eye(self, n_rows: int, n_cols: int, k: int, dtype: Any | None, device: Device) -> Tensor:
        options = self.options(dtype, device)
        with numpy_shapes():
            if _is_floating(dtype):
                return mx.np.eye(n_rows, n_cols, k, **options)
            return self._from_values(np.eye(n_rows, n_cols, k, options["dtype"]), dtype, options)


def is_bfloat16(dtype: Any) -> bool:
    return bool(np.dtype(dtype) == BFLOAT16)


def _default_dtype(kind: np.dtype[Any]) -> np.dtype[Any]:
    """Return the default dtype for Python integers and booleans."""
    return np.dtype(np.bool_ if kind.kind == "b" else np.int64)


def _has_operator(dtype: Any | None) -> bool:
    return dtype is None or np.dtype(dtype) in _OPERATOR_DTYPES


def _is_floating(dtype: Any | None) -> bool:
    return dtype is None or (np.dtype(dtype) in _OPERATOR_DTYPES and np.dtype(dtype).kind == "f")
