"""The dtypes that have one name on every framework, and NumPy's own dtype of a name."""

from __future__ import annotations

import numpy as np

__all__ = ["DTYPES", "dtype_name", "numpy_dtype"]

DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)
"""The array-API names of the dtypes, and bfloat16."""

_NAMES = {np.dtype(name): name for name in DTYPES if name != "bfloat16"}


def dtype_name(dtype: np.dtype) -> str:
    """Return the name of one of NumPy's dtypes, which NumPy itself makes anew each time, in 1 to 2 us."""
    return _NAMES.get(dtype) or str(dtype.name)


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
        from devshim import _refusals

        raise _refusals.no_numpy_dtype(name) from error
    return found
