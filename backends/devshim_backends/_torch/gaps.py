"""What PyTorch, or this adapter, cannot do, and why. Imports no framework: the support table is made from it."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from devshim.backend import Gap

if TYPE_CHECKING:
    from collections.abc import Mapping

GAPS: Mapping[str, Gap] = MappingProxyType(
    {
        "op_scope": Gap(
            "never", "PyTorch's operators compute where their arguments are, so a scope moves creation alone"
        ),
    }
)
