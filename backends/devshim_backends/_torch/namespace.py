"""The array-API namespace of PyTorch: the functions of array-api-compat, which is imported on first use.

Its ``take_along_axis`` (1.16) refuses int32 indices. Its functions of two tensors look for a common dtype first, which
takes longer than a small product: 4 of 5 us. For tensors of one dtype, PyTorch's own functions are called immediately.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

import torch

from devshim.contract.backend import Backend
from devshim.contract.namespaces import FFT, compat_namespace, native_functions
from devshim_backends._torch.tracing import is_traced_here

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_OF_TWO = ("add", "divide", "matmul", "maximum", "minimum", "multiply", "pow", "remainder", "subtract")
"""Functions that have the same name, and for tensors of one dtype the same result, in PyTorch."""
_OF_FLOATS = ("mean", "std", "var")
"""Functions that PyTorch computes only for floating dtypes; NumPy and JAX also compute them for integers and bools."""
_TRANSFORMS = frozenset(f"fft.{name}" for name in FFT if "shift" not in name and "freq" not in name)


class TorchNamespace(Backend):
    """The mixin for array-API namespaces."""

    def array_api(self) -> Mapping[str, Any]:
        found = native_functions(compat_namespace(self.title, "torch"))
        quick = {name: _skip_promotion(getattr(torch, name), found[name]) for name in _OF_TWO}
        floating = {name: _in_floats(found[name]) for name in _OF_FLOATS}
        transforms = {name: _of_any_batch(fn) for name, fn in found.items() if name in _TRANSFORMS}
        return {**found, **quick, **floating, **transforms, "take_along_axis": _take_along_axis}


def _skip_promotion(native: Callable[..., Any], promoting: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls PyTorch's own for tensors of one dtype, and otherwise array-api-compat's."""

    @wraps(promoting)
    def call(x1: Any, x2: Any, /) -> Any:
        is_one = isinstance(x1, torch.Tensor) and isinstance(x2, torch.Tensor) and x1.dtype is x2.dtype
        return native(x1, x2) if is_one else promoting(x1, x2)

    return call


def _in_floats(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that computes with integers and bools in PyTorch's default dtype."""

    @wraps(fn)
    def call(x: Any, /, **options: Any) -> Any:
        exact = not (x.is_floating_point() or x.is_complex())
        return fn(x.to(torch.get_default_dtype()) if exact else x, **options)

    return call


def _of_any_batch(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a transform that accepts no vectors: MKL refuses them (2.13)."""

    @wraps(fn)
    def call(x: Any, /, **options: Any) -> Any:
        if 0 not in x.shape:
            return fn(x, **options)
        found = fn(x.new_zeros([size or 1 for size in x.shape]), **options)
        axes = options.get("axes", options.get("axis", -1))
        count = len(x.shape)
        if axes is None:
            axes = range(-len(options.get("s") or x.shape), 0)
        done = {axis % count for axis in ((axes,) if isinstance(axes, int) else axes)}
        return found[tuple(slice(0 if not x.shape[i] and i not in done else None) for i in range(count))]

    return call


def _take_along_axis(x: Any, indices: Any, /, *, axis: int = -1) -> Any:
    """Return elements along an axis.

    ``torch.take_along_dim`` takes indices of int64 only, and three times as long as ``torch.gather``, because it
    broadcasts, and counts negative indices from the end. ``gather`` refuses those on the CPU, and on a real GPU they
    would make the process unable to use it.
    """
    indices = indices.long()
    if not _is_recorded() and type(axis) is int and _are_rows(x, indices, axis):
        try:
            return torch.gather(x, axis, indices)
        except RuntimeError:  # a negative index, or an error that the slow path repeats
            pass
    return torch.take_along_dim(x, indices, dim=axis)


def _are_rows(x: Any, indices: Any, axis: int) -> bool:
    """Return True for plain tensors on the CPU whose shapes differ only along an axis."""
    if type(x) is not torch.Tensor or x.is_cpu is not True or x.dim() != indices.dim():
        return False
    sizes, counts = x.shape, indices.shape
    return bool(sizes[:axis] == counts[:axis] and sizes[axis:][1:] == counts[axis:][1:])


def _is_recorded() -> bool:
    """Return True while a compiler records this thread's operators: later calls may have other indices."""
    return torch.compiler.is_dynamo_compiling() or is_traced_here() or torch.jit.is_tracing()
