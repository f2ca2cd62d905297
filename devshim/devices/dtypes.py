"""The dtypes that have one name on every framework, and the NumPy dtype for each name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["COMPLEX", "DTYPES", "FLOATS", "RANKS", "SIGNED", "UNSIGNED"]
__all__ += ["dtype_name", "is_number", "is_numpy_dtype", "numpy_dtype", "promoted", "widest"]

SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
DTYPES = ("bool", *SIGNED, *UNSIGNED, *FLOATS, *COMPLEX)
"""The array-API names of the dtypes, and bfloat16."""
RANKS = {name: rank for rank, names in enumerate((("bool",), (*SIGNED, *UNSIGNED), FLOATS, COMPLEX)) for name in names}
"""The rank of a dtype's kind: bool, integer, float, complex."""

_NUMBERS = ("float", "bfloat", "int", "uint", "bool", "complex")


def dtype_name(dtype: np.dtype) -> str:
    """Return the name of a NumPy dtype; NumPy itself builds the name again on each call, in 1 to 2 us."""
    return _NAMES.get(dtype) or str(dtype.name)


def is_numpy_dtype(value: object) -> bool:
    """Return True for a dtype of numbers that NumPy can compute with directly: in native byte order, or bfloat16."""
    if not isinstance(value, np.dtype) or not value.isnative:
        return False
    return value.kind in "biufc" or value.name == "bfloat16"  # ml_dtypes gives its own dtypes the kind "V"


def is_number(name: str) -> bool:
    """Return True for the name of a dtype of numbers; others are text, dates, or keys of a random generator."""
    return name.startswith(_NUMBERS)


def numpy_dtype(name: str) -> np.dtype:
    """Return the NumPy dtype for a name; bfloat16 and the 8-bit floats come from ``ml_dtypes``.

    Raises:
        ConversionError: NumPy lacks the dtype, and ``ml_dtypes`` is not installed or lacks it, too.
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
    """Return the name of the dtype to which NumPy promotes several; a dtype that NumPy lacks counts as a wider one.

    PyTorch promotes int64 and float16 to float16 instead, which cannot hold every int64.
    """
    return dtype_name(np.result_type(*{_numpy_substitute(name) for name in names}))


def promoted(name: str, other: str) -> str:
    """Return the common dtype of two: the standard's, and for two kinds the dtype of the higher kind, as in PyTorch.

    The standard leaves promotion between kinds open. float32 and int64 give float32; NumPy would choose float64.
    """
    if name == other:
        return name
    ranks = RANKS[name], RANKS[other]
    if ranks[0] != ranks[1] and max(ranks) < 3:
        return name if ranks[0] > ranks[1] else other
    if max(ranks) == 3:
        return "complex128" if {name, other} & {"complex128", "float64"} else "complex64"
    if "bfloat16" in (name, other):
        return "float64" if "float64" in (name, other) else "float32"
    if ranks[0] == 1 and "uint64" in (name, other) and name[0] != other[0]:
        return "float64"
    return str(np.result_type(name, other).name)


def _numpy_substitute(name: str) -> str:
    """Return a NumPy dtype that holds the values of a dtype: of bfloat16, and of floats of 8 bits and fewer."""
    if name.startswith(("bfloat16", "float8", "float6_", "float4")):
        return "float32"
    return "complex64" if name == "complex32" else name


# Last: while GPUs are simulated, the import of NumPy loads its adapter, which imports this module.
import numpy as np  # noqa: E402

_NAMES = {np.dtype(name): name for name in DTYPES if name != "bfloat16"}
