"""The contract for array-API namespaces: what `ds.namespace` needs of an adapter.

An adapter implements this in ``namespace.py``. It returns functions of the framework; devshim adds what it can build
from the rest of the contract: dtypes, constants and creation on a device.
"""

from __future__ import annotations

from functools import wraps
from importlib import import_module
from operator import index
from typing import TYPE_CHECKING, Any

from devshim.contract import capabilities
from devshim.errors import ArgumentError, UnsupportedError
from devshim.errors.formatting import describe
from devshim.errors.types import JoinedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "ABOUT_DTYPES",
    "CREATION",
    "FFT",
    "FUNCTIONS",
    "LINALG",
    "VERSION",
    "AxisTypeError",
    "NamespaceBackend",
    "compat_namespace",
    "missing_axis",
    "native_functions",
    "require_axes",
    "requiring_axis",
    "whole_axis",
]

VERSION = "2025.12"
"""The version of the array API standard whose names these are."""

CREATION = (
    *("arange", "asarray", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like", "linspace"),
    *("ones", "ones_like", "zeros", "zeros_like"),
)
"""The functions that make a tensor on a device; devshim writes them for every framework."""

FUNCTIONS = (
    *("meshgrid", "tril", "triu"),
    *("astype", "broadcast_arrays", "broadcast_shapes", "broadcast_to", "can_cast", "finfo", "iinfo", "isdtype"),
    *("result_type", "abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and"),
    *("bitwise_invert", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "ceil", "clip"),
    *("conj", "copysign", "cos", "cosh", "divide", "equal", "exp", "expm1", "floor", "floor_divide", "greater"),
    *("greater_equal", "hypot", "imag", "isfinite", "isinf", "isnan", "less", "less_equal", "log", "log10", "log1p"),
    *("log2", "logaddexp", "logical_and", "logical_not", "logical_or", "logical_xor", "maximum", "minimum"),
    *("multiply", "negative", "nextafter", "not_equal", "positive", "pow", "real", "reciprocal", "remainder"),
    *("round", "sign", "signbit", "sin", "sinh", "sqrt", "square", "subtract", "tan", "tanh", "trunc"),
    *("take", "take_along_axis", "matmul", "matrix_transpose", "tensordot", "vecdot"),
    *("concat", "expand_dims", "flip", "moveaxis", "permute_dims", "repeat", "reshape", "roll", "squeeze", "stack"),
    *("tile", "unstack", "argmax", "argmin", "count_nonzero", "nonzero", "searchsorted", "where", "isin"),
    *("unique_all", "unique_counts", "unique_inverse", "unique_values", "argsort", "sort"),
    *("cumulative_prod", "cumulative_sum", "max", "mean", "min", "prod", "std", "sum", "var", "all", "any", "diff"),
)
"""The other functions of the standard's main namespace."""

ABOUT_DTYPES = frozenset({"broadcast_shapes", "can_cast", "finfo", "iinfo", "isdtype", "result_type"})
"""The functions of `FUNCTIONS` whose results are not tensors."""

LINALG = (
    *("cholesky", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv", "matmul", "matrix_norm"),
    *("matrix_power", "matrix_rank", "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals"),
    *("tensordot", "trace", "vecdot", "vector_norm"),
)
"""The functions of the extension ``linalg``."""

FFT = (
    *("fft", "ifft", "fftn", "ifftn", "rfft", "irfft", "rfftn", "irfftn", "hfft", "ihfft", "fftfreq", "rfftfreq"),
    *("fftshift", "ifftshift"),
)
"""The functions of the extension ``fft``."""


class NamespaceBackend:
    """The mixin of `Backend` for array-API namespaces."""

    def array_api(self) -> Mapping[str, Any]:
        """Return the framework's functions by their names in the standard, those of extensions as ``linalg.svd``.

        The names are those of `FUNCTIONS`, `LINALG` and `FFT`; a function that the framework lacks is left out. Each
        function takes and returns the framework's own tensors, and computes where its arguments are. Called once.
        """
        raise capabilities.unsupported_error(self, "namespace")  # type: ignore[arg-type]  # only Backend derives from this


def compat_namespace(title: str, module: str) -> Any:
    """Return a module of array-api-compat, such as ``"numpy"``, for the framework with this title."""
    try:
        return import_module(f"array_api_compat.{module}")
    except ModuleNotFoundError as error:
        if error.name != "array_api_compat":
            raise
        msg = f"the namespace of {title} needs array-api-compat, which is not installed"
        raise UnsupportedError(msg, "install it: pip install array-api-compat") from error


def native_functions(module: Any) -> dict[str, Any]:
    """Return the functions that a module of an array library has under the names of the standard."""
    names = (*FUNCTIONS, *(f"linalg.{name}" for name in LINALG), *(f"fft.{name}" for name in FFT))
    return {name: found for name in names if (found := _attribute(module, name)) is not None}


def _attribute(module: Any, name: str) -> Any:
    for part in name.split("."):
        module = getattr(module, part, None)
    return module


def requiring_axis(take: Callable[..., Any]) -> Callable[..., Any]:
    """Return a ``take`` that needs an axis unless the array is a vector; NumPy's and JAX's flatten the array first."""

    @wraps(take)
    def call(x: Any, indices: Any, /, *, axis: int | None = None, **options: Any) -> Any:
        if axis is None:
            from numpy import ndim  # of a list, too

            if ndim(x) != 1:
                raise missing_axis("take", ndim(x))
            axis = 0
        return take(x, indices, axis=axis, **options)

    return call


class AxisTypeError(JoinedError, ArgumentError, TypeError):
    """An axis or offset that is not an int; the frameworks' own functions raise a ``TypeError``."""


def require_axes(axis: Any, call: str, *, one: bool = False) -> Any:
    """Return an axis as an int, or several as a tuple of them; a function that takes one axis refuses several.

    Raises:
        AxisTypeError: An axis is a float or another object that is not an int.
    """
    if type(axis) is int:
        return axis
    if not one and isinstance(axis, (tuple, list)):
        return tuple([each if type(each) is int else whole_axis(each, call) for each in axis])
    return whole_axis(axis, call)


def whole_axis(axis: Any, call: str, name: str = "axis") -> int:
    """Return an axis, or another argument, that is an integer of NumPy or a tensor as an int.

    Raises:
        AxisTypeError: It is something else.
    """
    try:
        return index(axis)
    except TypeError as error:
        msg = f"the {name} of {call} is {describe(axis)}, and it must be an int"
        raise AxisTypeError(msg, f"pass an int, such as {name}=0") from error


def missing_axis(call: str, count: int) -> ArgumentError:
    """Return the error for a function that needs an axis of a tensor with this number of dimensions."""
    msg = f"{call} was given no axis for a tensor of {count} dimension{'' if count == 1 else 's'}"
    return ArgumentError(msg, "name the axis: axis=0")
