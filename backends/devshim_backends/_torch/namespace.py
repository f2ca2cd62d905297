"""The array-API namespace of PyTorch: the functions of array-api-compat, which is imported on first use.

Its ``take_along_axis`` (1.16) refuses int32 indices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from devshim.contract.backend import Backend
from devshim.contract.namespaces import compat, native_functions

if TYPE_CHECKING:
    from collections.abc import Mapping


class TorchNamespace(Backend):
    """The mixin for array-API namespaces."""

    def array_api(self) -> Mapping[str, Any]:
        found = native_functions(compat(self.title, "torch"))
        return {**found, "take_along_axis": _take_along_axis}


def _take_along_axis(x: Any, indices: Any, /, *, axis: int = -1) -> Any:
    """Return elements along an axis; ``torch.take_along_dim`` takes indices of int64 only."""
    return torch.take_along_dim(x, indices.long(), dim=axis)
