"""Making MXNet arrays on a device: always of the NumPy interface, ``mx.np.ndarray``.

Requirements this module answers:

* A dtype that is asked for is kept.  ``mx.np.array`` makes float32 of every list and, in 2.0, of NumPy's int64 and
  float64, and ``mx.np.full`` sends integers through a double (2**53 + 1 is lost in 1.9), so values with a dtype of
  their own are made by NumPy and sent as bytes.
* ``eye`` and ``arange`` have no bool, no operator has bfloat16 among its dtypes: those go the same way.
* Without a dtype, whole numbers stay whole and truth values stay truth values, as everywhere else: ``mx.np.array([1])``
  and, in 1.9, ``mx.np.full((2,), 1)`` would be float32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mxnet as mx
import numpy as np

from devshim import _refusals
from devshim_backends._mxnet.native import BFLOAT16, CODES, WHERE, allocate, numpy_shapes
from devshim_backends._mxnet.tensors import MxnetTensors

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.backend import Tensor
    from devshim.device import Device

_OWN = frozenset(np.dtype(name) for name in ("float16", "float32", "float64", "int32", "int64", "uint8", "int8"))
"""The dtypes that MXNet's creation operators take in both releases."""
_DTYPES: dict[str, Any] = {name: BFLOAT16 if name == "bfloat16" else np.dtype(name) for name in CODES}
_IS_DTYPE = frozenset(_DTYPES.values()) | {kind.type for name, kind in _DTYPES.items() if name != "bfloat16"}


class MxnetCreation(MxnetTensors):
    """The room of creation."""

    def dtype(self, name: str) -> Any:
        found = _DTYPES.get(name)
        if found is None:
            raise _refusals.no_dtype(
                self, name, "int32" if name[-2:] in ("16", "32", "64") and "int" in name else "float32"
            )
        return found

    def is_dtype(self, value: object) -> bool:
        try:
            return value in _IS_DTYPE
        except TypeError:  # not hashable, so no dtype
            return False

    def asarray(self, values: object, dtype: Any | None, device: Device) -> Tensor:
        kind = np.asarray(values).dtype
        if kind.kind not in "biuf":
            raise _refusals.no_dtype(self, kind.name)
        if dtype is None and kind.kind != "f":
            dtype = _default(kind)
        if dtype is not None:
            return self._sent(lambda wanted: np.asarray(values, wanted), dtype, device)
        with numpy_shapes():
            return mx.np.array(values, **self._on(device))

    def cast(self, x: Tensor, dtype: Any) -> Tensor:
        with numpy_shapes():
            if not _is_bfloat16(dtype):
                return x.astype(np.dtype(dtype).name)
            # Only the older interface's operators know bfloat16; the views on both sides keep the gradient.
            if isinstance(x, mx.np.ndarray):
                return mx.nd.cast(x.as_nd_ndarray(), dtype=BFLOAT16).as_np_ndarray()
            return mx.nd.cast(x, dtype=BFLOAT16)

    def empty(self, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        if dtype is None:
            with numpy_shapes():
                return mx.np.empty(shape, **self._on(device))
        name = "bfloat16" if _is_bfloat16(dtype) else np.dtype(dtype).name
        return allocate(shape, CODES[name], self.to_native(device))

    def full(self, shape: tuple[int, ...], value: complex, dtype: Any | None, device: Device) -> Tensor:
        if isinstance(value, complex):
            raise _refusals.no_dtype(self, "complex64")
        if dtype is None and isinstance(value, int):
            dtype = _default(np.asarray(value).dtype)
        exact = not isinstance(value, int) or abs(value) < 2**53
        if dtype is None or (_own(dtype) and exact):
            with numpy_shapes():
                return mx.np.full(shape, value, **self._as(dtype), **self._on(device))
        return self._sent(lambda wanted: np.full(shape, value, wanted), dtype, device)

    def zeros(self, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        if dtype is None or _own(dtype):
            with numpy_shapes():
                return mx.np.zeros(shape, **self._as(dtype), **self._on(device))
        return self._sent(lambda wanted: np.zeros(shape, wanted), dtype, device)

    def ones(self, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        if dtype is None or _own(dtype):
            with numpy_shapes():
                return mx.np.ones(shape, **self._as(dtype), **self._on(device))
        return self._sent(lambda wanted: np.ones(shape, wanted), dtype, device)

    def arange(self, start: float, stop: float, step: float, dtype: Any | None, device: Device) -> Tensor:
        if dtype is None and all(isinstance(bound, int) for bound in (start, stop, step)):
            dtype = np.dtype(np.int64)
        if dtype is None or _floating(dtype):
            with numpy_shapes():
                return mx.np.arange(start, stop, step, **self._as(dtype), **self._on(device))
        return self._sent(lambda wanted: np.arange(start, stop, step).astype(wanted), dtype, device)

    def linspace(
        self, start: float, stop: float, num: int, dtype: Any | None, device: Device, endpoint: bool
    ) -> Tensor:
        if dtype is None or _floating(dtype):
            with numpy_shapes():
                return mx.np.linspace(start, stop, num, endpoint=endpoint, **self._as(dtype), **self._on(device))
        return self._sent(lambda wanted: np.linspace(start, stop, num, endpoint).astype(wanted), dtype, device)

    def eye(self, n_rows: int, n_cols: int, k: int, dtype: Any | None, device: Device) -> Tensor:
        if dtype is None or _floating(dtype):
            with numpy_shapes():
                return mx.np.eye(n_rows, n_cols, k, **self._as(dtype), **self._on(device))
        return self._sent(lambda wanted: np.eye(n_rows, n_cols, k, wanted), dtype, device)

    def _on(self, device: Device) -> dict[str, Any]:
        return {WHERE: self.to_native(device)}

    def _as(self, dtype: Any | None) -> dict[str, Any]:
        return {} if dtype is None else {"dtype": np.dtype(dtype).name}

    def _sent(self, make: Callable[[Any], np.ndarray], dtype: Any, device: Device) -> Tensor:
        """An array that NumPy makes and MXNet gets as bytes; bfloat16 is rounded from float32 on the device."""
        if _is_bfloat16(dtype):
            return self.cast(self.from_numpy(make(np.float32), device, True), dtype)
        return self.from_numpy(make(np.dtype(dtype)), device, True)


def _is_bfloat16(dtype: Any) -> bool:
    return bool(np.dtype(dtype) == BFLOAT16)


def _default(kind: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of Python's whole numbers and truth values without one asked for."""
    return np.dtype(np.bool_ if kind.kind == "b" else np.int64)


def _own(dtype: Any) -> bool:
    return np.dtype(dtype) in _OWN


def _floating(dtype: Any) -> bool:
    return np.dtype(dtype) in _OWN and np.dtype(dtype).kind == "f"
