"""The parts of an object that a plan gives to devices: blocks of tensors, and single tensors.

A tree may have a million tensors, so a single tensor is a plain tuple of its path, owner and bytes: the garbage
collector looks at a tuple like this once, and at any other object in each collection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Part", "Single", "as_part", "nbytes_of", "sizes_of"]


class Part:
    """A part of an object that goes to one device: its leaves, its bytes, and the parts inside it."""

    __slots__ = ("children", "leaves", "path", "whole")

    def __init__(
        self, path: str, leaves: dict[str, tuple[int, int]], children: Sequence[Part] | None, whole: bool = False
    ) -> None:
        self.path: str = path
        self.leaves: dict[str, tuple[int, int]] = leaves
        """Path -> the id of the object that owns the data, and its bytes."""
        self.children: Sequence[Part] | None = children
        """The parts inside it; None if each of its leaves is one, so that they are made only when it is split."""
        self.whole: bool = whole
        """True if it is split only if it fits on no device."""

    @property
    def divisible(self) -> bool:
        """True if there are parts inside it."""
        return self.children is None or len(self.children) > 0

    @property
    def opens(self) -> bool:
        """True if it has blocks inside it, between which a plan may cut to balance the devices."""
        return bool(self.children) and not self.whole

    @property
    def nbytes(self) -> int:
        """The bytes of its leaves; tied leaves count once."""
        sizes = self.leaves.values()
        return next(iter(sizes))[1] if len(sizes) == 1 else sum(dict(sizes).values())

    def split(self) -> list[Part | Single]:
        """Return the parts inside it, after one of the leaves that are in none of them."""
        if self.children is None:
            return [(path, *size) for path, size in self.leaves.items()]
        inside = {path for part in self.children for path in part.leaves}
        rest = {path: size for path, size in self.leaves.items() if path not in inside}
        return [*([Part(self.path, rest, ())] if rest else []), *self.children]


Single = tuple[str, int, int]
"""A part that is one tensor: its path, the id of the object that owns the data, and its bytes."""


def as_part(part: Part | Single) -> Part:
    """Return a part in the general form, of a single tensor, too."""
    return part if isinstance(part, Part) else Part(part[0], {part[0]: (part[1], part[2])}, ())


def nbytes_of(part: Part | Single) -> int:
    """Return the bytes of a part."""
    return part.nbytes if isinstance(part, Part) else part[2]


def sizes_of(parts: list[Part | Single]) -> tuple[dict[str, int], dict[int, int], int]:
    """Return the bytes of each leaf by its path, and by the id of its owner, and how many leaves there are."""
    sizes: dict[str, int] = {}
    owners: dict[int, int] = {}
    count = 0
    for part in parts:
        if type(part) is tuple:
            path, owner, nbytes = part
            sizes[path] = owners[owner] = nbytes
            count += 1
            continue
        leaves = as_part(part).leaves
        count += len(leaves)
        for path, (owner, nbytes) in leaves.items():
            sizes[path] = owners[owner] = nbytes
    return sizes, owners, count
