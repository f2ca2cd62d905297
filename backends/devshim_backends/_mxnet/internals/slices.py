"""Functions that slice tensors, for dtypes and shapes that MXNet's slices lack.

Slices of some dtypes raise when a result is read (2.0.0b1). Slices along one of the last of many axes raise (1.9.1,
2.0.0b1).
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from devshim_backends._array_api.manipulation import axis_of
from devshim_backends._mxnet.internals import many_axes
from devshim_backends._mxnet.internals.elementwise import DT, RARE, cast
from devshim_backends._mxnet.internals.native import iter_arrays

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["AXES", "sliced"]

AXES = {"diff": -1, "roll": None, "unstack": 0}
"""The functions that slice the tensor that they are given -> their default axis."""


def sliced(name: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that slices tensors of a dtype that has a kernel, with few axes, and casts the results back."""

    @wraps(fn)
    def compute(x: Any, *args: Any, axis: Any = AXES[name], **options: Any) -> Any:
        wanted = DT.result_name(*iter_arrays((x, *options.values())))
        kernel = RARE.get(wanted, wanted)
        if kernel != wanted:
            x = x.astype(kernel)
            options = {key: each.astype(kernel) if hasattr(each, "handle") else each for key, each in options.items()}
        if isinstance(axis, tuple):
            found = _roll(fn, axis, x, *args, **options)
        elif axis is None:
            found = fn(x, *args, axis=axis, **options)
        else:
            along = many_axes.along_axis(lambda t, axis, **rest: fn(t, *args, axis=axis, **rest))
            found = along(x, axis_of(axis, len(x.shape), name), **options)
        if kernel == wanted:
            return found
        return tuple(cast(each, wanted) for each in found) if isinstance(found, tuple) else cast(found, wanted)

    return compute


def _roll(fn: Callable[..., Any], axis: tuple[int, ...], x: Any, shift: Any) -> Any:
    """Return a tensor whose elements are shifted along several axes, of which only `roll` takes a tuple."""
    shifts = shift if isinstance(shift, tuple) else (shift,) * len(axis)
    for by, each in zip(shifts, axis, strict=True):
        x = many_axes.along_axis(lambda t, axis, by=by: fn(t, by, axis=axis))(x, axis_of(each, len(x.shape), "roll"))
    return x
