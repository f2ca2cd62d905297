"""The array-API namespace of PyTorch: the functions of array-api-compat, which is imported on first use.

Its ``take_along_axis`` (1.16) refuses int32 indices. Its functions of two tensors look for a common dtype first, which
takes longer than a small product: 4 of 5 us. For tensors of one dtype, PyTorch's own functions are called at once.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

import torch

from devshim.contract.backend import Backend
from devshim.contract.namespaces import compat, native_functions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_OF_TWO = ("add", "divide", "matmul", "maximum", "minimum", "multiply", "pow", "remainder", "subtract")
"""Functions that have the same name, and for tensors of one dtype the same result, in PyTorch."""


class TorchNamespace(Backend):
    """The mixin for array-API namespaces."""

    def array_api(self) -> Mapping[str, Any]:
        found = native_functions(compat(self.title, "torch"))
        quick = {name: _without_promotion(getattr(torch, name), found[name]) for name in _OF_TWO}
        return {**found, **quick, "take_along_axis": _take_along_axis}


def _without_promotion(native: Callable[..., Any], promoting: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls PyTorch's own for tensors of one dtype, and otherwise array-api-compat's."""

    @wraps(promoting)
    def call(x1: Any, x2: Any, /) -> Any:
        is_one = isinstance(x1, torch.Tensor) and isinstance(x2, torch.Tensor) and x1.dtype is x2.dtype
        return native(x1, x2) if is_one else promoting(x1, x2)

    return call


def _take_along_axis(x: Any, indices: Any, /, *, axis: int = -1) -> Any:
    """Return elements along an axis; ``torch.take_along_dim`` takes indices of int64 only."""
    return torch.take_along_dim(x, indices.long(), dim=axis)
