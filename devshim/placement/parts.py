"""The parts of an object that a plan gives to devices: blocks of tensors, and single tensors.

A tree may have a million tensors, so a part of one tensor has no dictionary, and code that asks all parts for their
leaves reads it without one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Part", "TensorPart", "sizes_of"]


class Part:
    """A part of an object that goes to one device: its leaves, its bytes, and the parts inside it."""

    __slots__ = ("_leaves", "children", "path")

    def __init__(self, path: str, leaves: dict[str, tuple[int, int]], children: Sequence[Part] | None) -> None:
        self.path: str = path
        self._leaves = leaves
        self.children: Sequence[Part] | None = children
        """The parts inside it; None if each of its leaves is one, so that they are made only when it is split."""

    @property
    def leaves(self) -> dict[str, tuple[int, int]]:
        """Path -> the id of the object that owns the data, and its bytes."""
        return self._leaves

    @property
    def divisible(self) -> bool:
        """True if there are parts inside it."""
        return self.children is None or len(self.children) > 0

    @property
    def nbytes(self) -> int:
        """The bytes of its leaves; tied leaves count once."""
        sizes = self.leaves.values()
        return next(iter(sizes))[1] if len(sizes) == 1 else sum(dict(sizes).values())

    def split(self) -> list[Part]:
        """Return the parts inside it, after one of the leaves that are in none of them."""
        if self.children is None:
            return [TensorPart(path, *size) for path, size in self.leaves.items()]
        inside = {path for part in self.children for path in part.leaves}
        rest = {path: size for path, size in self.leaves.items() if path not in inside}
        return [*([Part(self.path, rest, ())] if rest else []), *self.children]


class TensorPart(Part):
    """A part that is one tensor; it has no dictionary, which for a million would be work for the garbage collector."""

    __slots__ = ("_nbytes", "owner")

    def __init__(self, path: str, owner: int, nbytes: int) -> None:
        self.path: str = path
        self.children: Sequence[Part] | None = ()
        self.owner: int = owner
        """The id of the object that owns the data."""
        self._nbytes = nbytes

    @property
    def leaves(self) -> dict[str, tuple[int, int]]:
        """Its only leaf, in a new dictionary."""
        return {self.path: (self.owner, self._nbytes)}

    @property
    def nbytes(self) -> int:
        """The bytes of the tensor."""
        return self._nbytes


def sizes_of(parts: list[Part]) -> tuple[dict[str, int], dict[int, int], int]:
    """Return the bytes of each leaf by its path, and by the id of its owner, and how many leaves there are.

    There may be a million, so parts of one tensor are read without the dictionary that `Part.leaves` would make.
    """
    sizes: dict[str, int] = {}
    owners: dict[int, int] = {}
    count = 0
    for part in parts:
        if type(part) is TensorPart:
            sizes[part.path] = owners[part.owner] = part.nbytes
            count += 1
            continue
        leaves = part.leaves
        count += len(leaves)
        for path, (owner, nbytes) in leaves.items():
            sizes[path] = owners[owner] = nbytes
    return sizes, owners, count
