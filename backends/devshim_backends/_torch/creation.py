"""New tensors on exactly the requested device, and the dtypes they can have.

Requirements of this module:

* Every call names its device, so ``torch.set_default_device`` or a user's scope cannot change it.
* Every function accepts every dtype. PyTorch has no ``arange``, ``linspace`` or ``eye`` for bool, complex and the wider
  unsigned integers (``"arange_cpu" not implemented for 'UInt16'``, 2.13), so those are made in a wider dtype and cast.
* An empty range is an empty tensor, although ``torch.arange(1, 0, 1)`` raises.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from devshim.contract.backend import Backend
from devshim.devices.device import CPU
from devshim.devices.dtypes import DTYPES
from devshim.devices.ranges import read_numbers, require_fit, require_values_fit
from devshim.errors import UnsupportedError, messages
from devshim_backends._torch.devices import native
from devshim_backends._torch.tracing import compiles_here

if TYPE_CHECKING:
    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device

NUMPY_DTYPES = {name: np.dtype(name) for name in DTYPES if name != "bfloat16"}
"""The dtypes that PyTorch and NumPy share, by name."""

SMALL_FLOATS: dict[str, Any] = {
    "bfloat16": torch.int16,
    **{
        name: torch.int8
        for name in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
        if hasattr(torch, name)
    },
}
"""Floats that NumPy knows only through ``ml_dtypes``: name -> PyTorch's integer dtype of the same width."""

TORCH_DTYPES: dict[str, Any] = {name: getattr(torch, name) for name in (*NUMPY_DTYPES, *SMALL_FLOATS)}
"""Name of a dtype -> PyTorch's dtype."""
_DTYPES = frozenset(TORCH_DTYPES.values())


def _make_like(make: Any, x: Tensor) -> Tensor | None:
    """Return the result of ``torch.zeros_like`` for a tensor that `TorchCreation.zeros` would make in the same form."""
    plain = x.dtype in _DTYPES and x.layout is torch.strided and not x.is_nested and x.is_contiguous()
    return make(x) if plain else None


def _eye(n_rows: int, n_cols: int, k: int) -> Tensor | None:
    return torch.eye(n_rows, n_cols, device=native(CPU)) if k == 0 else None


HOST_MAKERS: dict[str, Any] = {
    name: partial(make, device=native(CPU))
    for name, make in {
        "arange": torch.arange,
        "asarray": torch.tensor,
        "empty": torch.empty,
        "full": torch.full,
        "ones": torch.ones,
        "zeros": torch.zeros,
    }.items()
}
HOST_MAKERS["eye"] = _eye
HOST_MAKERS |= {
    f"{name}_like": partial(_make_like, getattr(torch, f"{name}_like")) for name in ("empty", "ones", "zeros")
}
"""The functions of PyTorch that the methods below call, for the host: see `FastPaths.host_makers`."""

_LARGEST = {each: torch.finfo(each).max for each in TORCH_DTYPES.values() if each.is_floating_point}
_WITHOUT_LINSPACE = frozenset({torch.bool, torch.uint16, torch.uint32, torch.uint64})
_WITHOUT_ARANGE = _WITHOUT_LINSPACE | {torch.complex64, torch.complex128}


class TorchCreation(Backend):
    """Mixin for creation."""

    def dtype(self, name: str) -> Any:
        dtype = TORCH_DTYPES.get(name)
        if dtype is None:
            raise messages.no_dtype(self, name)
        return dtype

    def is_dtype(self, value: object) -> bool:
        return isinstance(value, torch.dtype)

    def asarray(self, values: object, dtype: Any | None, device: Device) -> Tensor:
        if type(values) is list and values and type(values[0]) is np.ndarray:
            values = np.asarray(values)  # PyTorch warns that it reads such lists slowly
        if dtype is not None and not dtype.is_complex and not compiles_here():
            _require_fit(values, dtype)
        try:
            return torch.tensor(values, dtype=dtype, device=native(device))
        except TypeError:  # NumPy's floats in a list, and an integer dtype (2.13): NumPy and the others cast them
            array = np.asarray(values)
            if dtype is None or array.dtype.kind not in "biufc":
                raise
            return torch.tensor(array, device=native(device)).to(dtype)
        except (OverflowError, ValueError):
            if not compiles_here():  # it names neither the dtype nor the integer that does not fit
                read_numbers(values, None if dtype is None else str(dtype).removeprefix("torch."))
            raise

    def cast(self, x: Tensor, dtype: Any) -> Tensor:
        return x.to(dtype)

    def empty(self, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        return _with_lengths(torch.empty, shape, dtype=dtype, device=native(device))

    def full(self, shape: tuple[int, ...], value: complex, dtype: Any | None, device: Device) -> Tensor:
        if dtype is None and type(value) is int:
            require_fit(value, "int64")
        largest = _LARGEST.get(dtype)
        if largest is not None and abs(value) > largest:
            value = torch.tensor(value, dtype=dtype).item()  # infinity, as on every framework: `full` refuses it
        return _with_lengths(torch.full, shape, value, dtype=dtype, device=native(device))

    def zeros(self, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        return _with_lengths(torch.zeros, shape, dtype=dtype, device=native(device))

    def ones(self, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        return _with_lengths(torch.ones, shape, dtype=dtype, device=native(device))

    def arange(self, start: float, stop: float, step: float, dtype: Any | None, device: Device) -> Tensor:
        if step and (stop - start) / step <= 0:
            start, stop, step = type(start + stop + step)(0), 0, 1
        if dtype in _WITHOUT_ARANGE:
            return torch.arange(start, stop, step, device=native(device)).to(dtype)
        return torch.arange(start, stop, step, dtype=dtype, device=native(device))

    def linspace(
        self, start: float, stop: float, num: int, dtype: Any | None, device: Device, endpoint: bool
    ) -> Tensor:
        wide = torch.float64 if dtype in _WITHOUT_LINSPACE else dtype
        x = torch.linspace(start, stop, num if endpoint else num + 1, dtype=wide, device=native(device))
        if not endpoint:
            x = x[:num].clone()  # new memory, not a view of a longer tensor
        return x if wide is dtype else x.to(dtype)

    def eye(self, n_rows: int, n_cols: int, k: int, dtype: Any | None, device: Device) -> Tensor:
        x = torch.zeros((n_rows, n_cols), dtype=dtype, device=native(device))
        if -n_rows < k < n_cols:
            x.diagonal(k).fill_(1)
        return x


def _with_lengths(make: Any, shape: tuple[int, ...], *value: complex, **options: Any) -> Tensor:
    """Return what ``make`` returns, or name the shape of a jagged tensor, in which one length is a symbol."""
    try:
        return make(shape, *value, **options)
    except RuntimeError as error:
        if not any(isinstance(length, torch.SymInt) and length.node.is_nested_int() for length in shape):
            raise
        msg = f"PyTorch's tensors of layout jagged have no fixed shape, and this one has {tuple(shape)}"
        raise UnsupportedError(msg, "pad it first: x.to_padded_tensor(0.0), or call torch.zeros_like(x)") from error


def _require_fit(values: object, dtype: torch.dtype) -> None:
    """Refuse numbers in a list that PyTorch (2.13) changes silently: -1 for uint8, complex ones for a real dtype."""
    if type(values) not in (list, tuple):
        return
    if not dtype.is_floating_point:
        require_values_fit(values, str(dtype).removeprefix("torch."))
        return
    for kind in set(map(type, values)):  # type: ignore[call-overload]  # a list
        if kind in (list, tuple):
            for each in values:  # type: ignore[attr-defined]
                _require_fit(each, dtype)
        elif issubclass(kind, complex):
            found = next(each for each in values if isinstance(each, complex))  # type: ignore[attr-defined]
            require_fit(found, str(dtype).removeprefix("torch."))
