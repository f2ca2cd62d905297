"""Checks of arguments that the functions of a namespace share on every framework.

The frameworks differ: some drop imaginary parts, return memory that nothing has written for a transform without
values, or raise an error of the library that computes it. The checks read types and shapes alone, and a function
without anything to check is not wrapped.
"""

from __future__ import annotations

from functools import wraps
from math import inf
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np

from devshim.contract.namespaces import require_axes
from devshim.devices.dtypes import COMPLEX
from devshim.errors import ArgumentError
from devshim.tensors import arguments, fitting

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from devshim.contract.backend import Backend

    Function = Callable[..., Any]

__all__ = ["checked"]

_ACCUMULATIONS = ("cumulative_prod", "cumulative_sum", "linalg.trace")
"""The functions that cast to a dtype first. ``sum`` and ``prod`` are called too often for a check."""
_TRANSFORMS = tuple(f"fft.{name}" for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"))


def checked(backend: Backend, functions: Mapping[str, Function]) -> dict[str, Function]:
    """Return the functions of a namespace, those with something to check inside a function that checks it."""
    found = dict(functions)
    for name in _TRANSFORMS:
        _wrap(found, name, _check_lengths)
    for name in ("fft.fftn", "fft.ifftn", "fft.rfftn", "fft.irfftn"):
        _wrap(found, name, _check_all_lengths)
    _wrap(found, "linalg.vector_norm", _norm_of_vectors)
    _wrap(found, "linalg.matrix_norm", _norm_of_matrices)
    _wrap(found, "linalg.matrix_rank", _rank, functions.get("count_nonzero"))
    for name in ("tensordot", "linalg.tensordot"):
        _wrap(found, name, _check_contracted)
    for name in ("vecdot", "linalg.vecdot", "linalg.cross"):
        _wrap(found, name, _check_vectors)
    if "complex" not in backend.gaps and "astype" in found:
        complex_dtypes = {arguments.dtype(backend, name) for name in COMPLEX}
        found["astype"] = _refuse_real(backend, found["astype"], complex_dtypes)
        for name in _ACCUMULATIONS:
            _wrap(found, name, _refuse_real_sum, backend, complex_dtypes)
    return found


def _wrap(found: dict[str, Function], name: str, how: Callable[..., Function], *more: Any) -> None:
    if name in found:
        fn = found[name]
        found[name] = wraps(fn)(how(name.rpartition(".")[2], fn, *more))


# -------------------------------------------------------------------- transforms
def _check_lengths(name: str, fn: Function) -> Function:
    def call(x: Any, /, *, n: int | None = None, axis: int = -1, **options: Any) -> Any:
        axis = require_axes(axis, name, one=True)
        _require_length(name, _shape(x), axis, n)
        return fn(x, n=n, axis=axis, **options)

    return call


def _check_all_lengths(name: str, fn: Function) -> Function:
    def call(x: Any, /, *, s: Any = None, axes: Any = None, **options: Any) -> Any:
        if axes is not None:
            axes = require_axes(axes, name)
        shape = _shape(x)
        count = len(shape) if s is None else len(s)
        chosen = tuple(range(-count, 0)) if axes is None else tuple(axes)
        lengths = (None,) * len(chosen) if s is None else tuple(s)
        for axis, n in zip(chosen, lengths, strict=False):
            _require_length(name if axis == chosen[-1] else "fftn", shape, axis, n)
        return fn(x, s=s, axes=axes, **options)

    return call


def _require_length(name: str, shape: tuple[int | None, ...], axis: int, n: int | None) -> None:
    """Refuse a transform to no values, and one of no values to real ones, for which NumPy (2.3) returns any memory."""
    if not -len(shape) <= axis < len(shape):
        return  # the function's own error says it
    given, is_real = shape[axis], name in ("irfft", "irfftn", "hfft")
    if n is None and given is not None:
        n = 2 * (given - 1) if is_real else given
    if (n is not None and n < 1) or (is_real and given == 0):
        msg = f"{name} was given axis {axis} of a tensor of shape {shape}"
        msg += f", for a transform to {n} values" if given else ", which has no values to transform"
        raise ArgumentError(msg, f"pass a longer axis, or n=8 for {name} of 8 values")


# -------------------------------------------------------------------- norms
def _norm_of_vectors(name: str, fn: Function) -> Function:
    def call(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
        if axis is not None:
            axis = require_axes(axis, name)
        shape = _shape(x)
        if 0 not in shape or not _is_empty(shape, axis):
            return fn(x, axis=axis, keepdims=keepdims, ord=ord)
        if ord == -inf:
            raise _no_smallest(name, shape, ord)
        zeros = fn(x, axis=axis, keepdims=keepdims, ord=1)
        return zeros + inf if ord < 0 else zeros

    return call


def _norm_of_matrices(name: str, fn: Function) -> Function:
    def call(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
        shape = _shape(x)
        if 0 not in shape[-2:]:
            return fn(x, keepdims=keepdims, ord=ord)
        if ord == -2 or (ord == -1 and not shape[-1]) or (ord == -inf and not shape[-2]):
            raise _no_smallest(name, shape, ord)
        return fn(x, keepdims=keepdims, ord="fro")  # 0: the frameworks refuse the largest of no numbers

    return call


def _rank(name: str, fn: Function, count: Function) -> Function:
    def call(x: Any, /, **options: Any) -> Any:
        return count(x, axis=(-2, -1)) if 0 in _shape(x)[-2:] else fn(x, **options)

    return call


def _is_empty(shape: tuple[int | None, ...], axis: Any) -> bool:
    """Return True if a tensor has no elements along one of the axes."""
    axes = range(len(shape)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return any(shape[i] == 0 for i in axes if -len(shape) <= i < len(shape))


def _no_smallest(name: str, shape: tuple[int | None, ...], ord: Any) -> ArgumentError:
    msg = f"{name} was given a tensor of shape {shape}, and ord={ord} is the smallest of no numbers"
    return ArgumentError(msg, "check that the tensor is not empty first")


# -------------------------------------------------------------------- products
def _check_contracted(name: str, fn: Function) -> Function:
    def call(x1: Any, x2: Any, /, *, axes: Any = 2) -> Any:
        first, second = _shape(x1), _shape(x2)
        for one, other in _pairs(axes):
            _require_equal_lengths(name, first, one, second, other)
        return fn(x1, x2, axes=axes)

    return call


def _pairs(axes: Any) -> list[tuple[int, int]]:
    """Return the pairs of axes that ``tensordot`` sums over; none for axes that it refuses."""
    try:
        if not isinstance(axes, (list, tuple, np.ndarray)):
            count = index(axes)
            return list(zip(range(-count, 0), range(count), strict=True))
        # NumPy and JAX take two numbers, too.
        first, second = ([each] if isinstance(each, int) else list(map(index, each)) for each in axes)
    except (TypeError, ValueError):
        return []
    return list(zip(first, second, strict=False))


def _check_vectors(name: str, fn: Function) -> Function:
    def call(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
        _require_equal_lengths(name, _shape(x1), axis, _shape(x2), axis)
        return fn(x1, x2, axis=axis)

    return call


def _require_equal_lengths(
    name: str, first: tuple[int | None, ...], one: int, second: tuple[int | None, ...], other: int
) -> None:
    """Refuse axes of different lengths, which frameworks broadcast, or join to one axis of the right length.

    For an axis that does not exist, the function's own error says it.
    """
    if -len(first) <= one < len(first) and -len(second) <= other < len(second):
        lengths = first[one], second[other]
        if lengths[0] != lengths[1] and all(n is not None and n >= 0 for n in lengths):
            msg = f"{name} was given axis {one} of shape {first} and axis {other} of shape {second}"
            raise ArgumentError(msg, "pass axes of one length: these are not broadcast")


def _shape(x: Any) -> tuple[int | None, ...]:
    """Return the shape; TensorFlow's compiler may not know all lengths or the rank, and a symbol of MXNet has none."""
    try:
        return tuple(getattr(x, "shape", ()))
    except ValueError:
        return ()


# -------------------------------------------------------------------- casts
def _refuse_real(backend: Backend, native: Function, complex_dtypes: set[Any]) -> Function:
    """Return an ``astype`` that refuses a real dtype for complex numbers, as the standard asks for."""

    @wraps(native)
    def astype(x: Any, dtype: Any, /, **options: Any) -> Any:
        if getattr(x, "dtype", None) in complex_dtypes and (name := arguments.dtype_name(backend, dtype)) != "bool":
            fitting.require_complex(backend.dtype_name(x), name)
        return native(x, dtype, **options)

    return astype


def _refuse_real_sum(name: str, fn: Function, backend: Backend, complex_dtypes: set[Any]) -> Function:
    """Return a sum or product that refuses a real dtype for complex numbers; without a dtype, it only calls ``fn``."""

    def call(x: Any, /, *args: Any, **options: Any) -> Any:
        dtype = options.get("dtype") if len(args) < 2 else args[1]  # JAX also takes it by position
        if dtype is not None and getattr(x, "dtype", None) in complex_dtypes:
            fitting.require_complex(backend.dtype_name(x), arguments.dtype_name(backend, dtype))
        return fn(x, *args, **options)

    return call
