"""The copies that a framework makes to a tensor of its operands and indices, for the wrappers of its methods."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from devshim.devices.device import CPU

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from devshim.devices.device import Device

    Copy: TypeAlias = tuple[Device, Device, str]
    """Source, target and reason of a copy."""

__all__ = ["OperandCopies"]


class OperandCopies(NamedTuple):
    """Finds the copies to a tensor that the framework is about to make.

    Attributes:
        indices: The class of the tensors that it copies as indices, or an empty tuple.
        where: Returns a tensor's device; None if it has none.
        copied_from: Returns the device of an operand that it would copy to another device, and None for others.
    """

    indices: Any
    where: Callable[[Any], Device | None]
    copied_from: Callable[[Any], Device | None]

    def of(self, x: Any, others: Sequence[Any], what: str, indexed: bool = False) -> list[Copy]:
        """Return source, target and reason of each copy to a tensor on a GPU, of operands or indices.

        Nearly all operands are numbers, or tensors that are not copied. So the tensor is asked for its device last.
        """
        sources = [source for each in others if (source := self.source_of(each, indexed)) is not None]
        target = self.where(x) if sources else None
        if target is None or target is CPU:
            return []
        return [(source, target, what) for source in sources if source is not target]

    def of_index(self, x: Any, others: tuple[Any, ...], what: str) -> list[Copy]:
        """Return the same for an index."""
        parts = _index_parts(others)
        copies = self.of(x, parts, what, indexed=True)
        if any(map(self.is_mask, parts)):
            source = self.where(x)
            if source is not None and source is not CPU:
                copies.append((source, CPU, "a selection by a mask"))
        return copies

    def of_write(self, x: Any, others: tuple[Any, ...], what: str) -> list[Copy]:
        """Return the same for an index and the value that is written; or that of a value that is written to the host.

        A value of a single number on a GPU is also copied to the host.
        """
        copies = self.of(x, (*_index_parts(others), *others[1:]), what, indexed=True)
        source = self.where(others[-1]) if isinstance(others[-1], self.indices) else None
        if source is not None and source is not CPU and self.where(x) is CPU:
            copies.append((source, CPU, what))
        return copies

    def is_mask(self, part: Any) -> bool:
        """Return True if an index is a mask of the framework: the host must find out how many elements it selects."""
        return isinstance(part, self.indices) and "bool" in str(part.dtype)

    def source_of(self, part: Any, indexed: bool) -> Device | None:
        """Return the device from which an operand or a part of an index is copied; None if it is not copied."""
        numpy = sys.modules.get("numpy")
        if numpy is not None and type(part) is numpy.ndarray:
            return CPU if part.ndim else None
        if indexed and isinstance(part, self.indices):
            device: Device | None = self.where(part)
            return device if getattr(part, "ndim", 1) else None
        return self.copied_from(part)


def _index_parts(others: tuple[Any, ...]) -> Sequence[Any]:
    """Return the parts of the index, the first argument of an index method."""
    return others[0] if others and isinstance(others[0], (tuple, list)) else others[:1]
