"""The array-API namespace of PyTorch: the functions of array-api-compat, which is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devshim.contract.backend import Backend
from devshim.contract.namespaces import compat, native_functions

if TYPE_CHECKING:
    from collections.abc import Mapping


class TorchNamespace(Backend):
    """The mixin for array-API namespaces."""

    def array_api(self) -> Mapping[str, Any]:
        return native_functions(compat(self.title, "torch"))
