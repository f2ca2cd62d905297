"""Making MXNet arrays on a device: always of the NumPy interface, ``mx.np.ndarray``.

Requirements this module answers:

* A dtype that is asked for is kept.  ``mx.np.array`` makes float32 of every list and, in 2.0, of NumPy's int64 and
  float64, and ``mx.np.full`` sends integers through a double (2**53 + 1 is lost in 1.9), so values with a dtype of
  their own are made by NumPy, and sent with that dtype said: they arrive to the bit.
* ``eye`` and ``arange`` have no bool, no operator has bfloat16 among its dtypes: those go the same way.
* Without a dtype, whole numbers stay whole and truth values stay truth values, as everywhere else: ``self._read([1])``
  and, in 1.9, ``mx.np.full((2,), 1)`` would be float32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mxnet as mx
import numpy as np

from devshim.errors import messages
from devshim_backends._mxnet.native import BFLOAT16, CODES, WHERE, allocate, numpy_shapes
from devshim_backends._mxnet.tensors import MxnetTensors
from devshim_backends._mxnet.tracing import require_recorded, require_symbol

if TYPE_CHECKING:
    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device

_OWN = frozenset(np.dtype(name) for name in ("float16", "float32", "float64", "int32", "int64", "uint8", "int8"))
"""The dtypes that MXNet's creation operators take in both releases."""
_DTYPES: dict[str, Any] = {name: BFLOAT16 if name == "bfloat16" else np.dtype(name) for name in CODES}
_IS_DTYPE = frozenset(_DTYPES.values()) | {kind.type for name, kind in _DTYPES.items() if name != "bfloat16"}


class MxnetCreation(MxnetTensors):
    """The room of creation."""

    def dtype(self, name: str) -> Any:
        found = _DTYPES.get(name)
        if found is None:
            raise messages.no_dtype(
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
            raise messages.no_dtype(self, kind.name)
        if dtype is None and kind.kind != "f":
            dtype = _default(kind)
        options = self.options(dtype, device)
        if dtype is not None:
            values = np.asarray(values, options["dtype"])
        with numpy_shapes():
            return self.rounded(self._read(values, **options), dtype)

    def options(self, dtype: Any | None, device: Device) -> dict[str, Any]:
        """Return the arguments that say where and of what dtype; in bfloat16's place float32 (`rounded`)."""
        require_symbol(self)
        if dtype is None:
            return {WHERE: self.to_native(device)}
        return {WHERE: self.to_native(device), "dtype": "float32" if _is_bfloat16(dtype) else np.dtype(dtype).name}

    def _read(self, values: object, **options: Any) -> Tensor:
        """An array of values of NumPy's or Python's."""
        require_recorded(self)
        return mx.np.array(values, **options)

    def cast(self, x: Tensor, dtype: Any) -> Tensor:
        with numpy_shapes():
            if not _is_bfloat16(dtype):
                return x.astype(np.dtype(dtype).name)
            # Only the older interface's operators know bfloat16; the views on both sides keep the gradient.
            if isinstance(x, mx.np.ndarray):
                return mx.nd.cast(x.as_nd_ndarray(), dtype=BFLOAT16).as_np_ndarray()
            return mx.nd.cast(x, dtype=BFLOAT16)

    def rounded(self, x: Tensor, dtype: Any | None) -> Tensor:
        """Return what was made for a dtype: itself, but for bfloat16, which is rounded from float32 on the device."""
        return x if dtype is None or not _is_bfloat16(dtype) else self.cast(x, dtype)

    def empty(self, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        require_recorded(self)
        native = self.to_native(device)
        with numpy_shapes():
            if dtype is None:
                return mx.np.empty(shape, **{WHERE: native})
            return mx.np.ndarray(allocate(shape, native, False, np.dtype(dtype)))

    def full(self, shape: tuple[int, ...], value: complex, dtype: Any | None, device: Device) -> Tensor:
        if isinstance(value, complex):
            raise messages.no_dtype(self, "complex64")
        if dtype is None and isinstance(value, int):
            dtype = _default(np.asarray(value).dtype)
        options = self.options(dtype, device)
        exact = not isinstance(value, int) or abs(value) < 2**53
        with numpy_shapes():
            if exact and _own(dtype):
                return mx.np.full(shape, value, **options)
            return self.rounded(self._read(np.full(shape, value, options["dtype"]), **options), dtype)

    def zeros(self, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        options = self.options(dtype, device)
        with numpy_shapes():
            if _own(dtype):
                return mx.np.zeros(shape, **options)
            return self.rounded(self._read(np.zeros(shape, options["dtype"]), **options), dtype)

    def ones(self, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        options = self.options(dtype, device)
        with numpy_shapes():
            if _own(dtype):
                return mx.np.ones(shape, **options)
            return self.rounded(self._read(np.ones(shape, options["dtype"]), **options), dtype)

    def arange(self, start: float, stop: float, step: float, dtype: Any | None, device: Device) -> Tensor:
        if dtype is None and all(isinstance(bound, int) for bound in (start, stop, step)):
            dtype = np.dtype(np.int64)
        options = self.options(dtype, device)
        with numpy_shapes():
            if _floating(dtype):
                return mx.np.arange(start, stop, step, **options)
            values = np.arange(start, stop, step).astype(options["dtype"])
            return self.rounded(self._read(values, **options), dtype)

    def linspace(
        self, start: float, stop: float, num: int, dtype: Any | None, device: Device, endpoint: bool
    ) -> Tensor:
        options = self.options(dtype, device)
        with numpy_shapes():
            if _floating(dtype):
                return mx.np.linspace(start, stop, num, endpoint=endpoint, **options)
            values = np.linspace(start, stop, num, endpoint).astype(options["dtype"])
            return self.rounded(self._read(values, **options), dtype)

    def eye(self, n_rows: int, n_cols: int, k: int, dtype: Any | None, device: Device) -> Tensor:
        options = self.options(dtype, device)
        with numpy_shapes():
            if _floating(dtype):
                return mx.np.eye(n_rows, n_cols, k, **options)
            return self.rounded(self._read(np.eye(n_rows, n_cols, k, options["dtype"]), **options), dtype)


def _is_bfloat16(dtype: Any) -> bool:
    return bool(np.dtype(dtype) == BFLOAT16)


def _default(kind: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of Python's whole numbers and truth values without one asked for."""
    return np.dtype(np.bool_ if kind.kind == "b" else np.int64)


def _own(dtype: Any | None) -> bool:
    return dtype is None or np.dtype(dtype) in _OWN


def _floating(dtype: Any | None) -> bool:
    return dtype is None or (np.dtype(dtype) in _OWN and np.dtype(dtype).kind == "f")
