"""The dtypes that have one name on every framework, and NumPy's own dtype of a name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["DTYPES", "dtype_name", "is_numpy_dtype", "numpy_dtype", "widest"]

DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)
"""The array-API names of the dtypes, and bfloat16."""

_NAMES = {np.dtype(name): name for name in DTYPES if name != "bfloat16"}


def dtype_name(dtype: np.dtype) -> str:
    """Return the name of one of NumPy's dtypes, which NumPy itself makes anew each time, in 1 to 2 us."""
    return _NAMES.get(dtype) or str(dtype.name)


def is_numpy_dtype(value: object) -> bool:
    """Return True for a dtype of numbers that NumPy computes with as it is: in native byte order, or bfloat16."""
    if not isinstance(value, np.dtype) or not value.isnative:
        return False
    return value.kind in "biufc" or value.name == "bfloat16"  # ml_dtypes gives its own dtypes the kind "V"


def numpy_dtype(name: str) -> np.dtype:
    """Return NumPy's dtype of a name; bfloat16 and the 8-bit floats are those of ``ml_dtypes``.

    Raises:
        ConversionError: NumPy has no such dtype, and ``ml_dtypes`` is not installed or has none either.
    """
    if name in DTYPES and name != "bfloat16":
        return np.dtype(name)
    try:
        import ml_dtypes

        found: np.dtype = np.dtype(getattr(ml_dtypes, name))
    except (ImportError, AttributeError) as error:
        from devshim.errors import messages

        raise messages.no_numpy_dtype(name) from error
    return found


def widest(names: Iterable[str]) -> str:
    """Return the name of the dtype that NumPy finds for the numbers of several; what NumPy lacks counts as wider.

    PyTorch finds another: float16 for int64 and float16, of which the former does not fit into the latter.
    """
    return str(np.result_type(*{_known(name) for name in names}).name)


def _known(name: str) -> str:
    """NumPy's own dtype that holds the numbers of one: of bfloat16, and of floats of 8 bits and less."""
    if name.startswith(("bfloat16", "float8", "float6_", "float4")):
        return "float32"
    return "complex64" if name == "complex32" else name
