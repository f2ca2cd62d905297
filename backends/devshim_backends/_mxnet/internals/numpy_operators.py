"""Operators on NumPy arrays without axes, or without elements, even while NumPy's shapes are off.

The namespace and devshim's own functions make such arrays: the mean of an array has no axes. MXNet 1.9 has NumPy's
shapes off unless a program calls ``npx.set_np()``, and 2.0 in every thread except the first. Then the operator in
``loss * 0.5`` raises "inferring shapes failed" (1.9.1, 2.0.0b1). The wrappers run an operator that failed in this way
again, with NumPy's shapes on. An operator that succeeds has no extra cost.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import mxnet as mx
from mxnet._ctypes import ndarray as _invoking
from mxnet._ffi._ctypes.function import FunctionBase

from devshim_backends._mxnet.internals.native import iter_arrays, numpy_shapes

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["NATIVE_CALL", "NATIVE_INVOKE", "call", "invoke"]

NATIVE_CALL, NATIVE_INVOKE = FunctionBase.__call__, _invoking._imperative_invoke
"""MXNet's functions that run the operators of the NumPy interface, and all others."""


def call(function: Any, *args: Any) -> Any:
    """Run an operator of the NumPy interface."""
    try:
        return NATIVE_CALL(function, *args)
    except mx.MXNetError:
        if not _needs_shapes(args):
            raise
    with numpy_shapes():
        return NATIVE_CALL(function, *args)


def invoke(handle: Any, arrays: Any, keys: Any, vals: Any, out: Any, *rest: Any) -> Any:
    """Run any other operator."""
    try:
        return NATIVE_INVOKE(handle, arrays, keys, vals, out, *rest)
    except mx.MXNetError:
        if not _needs_shapes(arrays):
            raise
    with numpy_shapes():
        return NATIVE_INVOKE(handle, arrays, keys, vals, out, *rest)


def _needs_shapes(args: Iterable[Any]) -> bool:
    """Return True if NumPy's shapes are off, and an argument exists only with them."""
    return not mx.util.is_np_shape() and any(
        isinstance(x, mx.np.ndarray) and not prod(x.shape or (0,)) for x in iter_arrays(args)
    )
