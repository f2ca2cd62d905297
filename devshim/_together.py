"""Moving many tensors: in one call for each framework and device, so that few transfers carry them, or none arrives.

Requirements this module answers:

* An adapter is given all that goes to one device at once (`Backend.copy_many`), and may pack small tensors together.
* Nothing half-moved: a device that one of them lacks is refused before anything is copied, and what had arrived when
  a copy fails is released.
* The error names the leaf: the one that was under way, or those that were, where a framework moves several at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from devshim import _transfer
from devshim.errors import DevshimError

if TYPE_CHECKING:
    from devshim._trees import Cell
    from devshim.backend import Backend, Tensor
    from devshim.device import Device

    Moving = dict[int, tuple[Backend, Tensor, Cell, Device]]
    """By the tensor's address: its backend, itself, where it stands in the tree, and where to."""


def move(moving: Moving, non_blocking: bool) -> dict[int, Tensor]:
    """Move all tensors found, and return the results by the address of what they are copies of."""
    groups: dict[tuple[int, Device], list[tuple[int, Tensor, Cell]]] = {}
    backends: dict[int, Backend] = {}
    for key, (backend, x, cell, target) in moving.items():
        backends[id(backend)] = backend
        groups.setdefault((id(backend), target), []).append((key, x, cell))
    for which, target in groups:  # a device one of them lacks is refused before anything is copied
        _transfer.require(backends[which], target)
    moved: dict[int, Tensor] = {}
    for (which, target), group in groups.items():
        under_way = list(range(len(group)))
        try:
            keys, xs = [key for key, _, _ in group], [x for _, x, _ in group]
            backend = backends[which]
            moved.update(zip(keys, _transfer.move_many(backend, xs, target, non_blocking, under_way), strict=True))
        except BaseException as error:
            moved.clear()  # the traceback would keep them, and their memory
            if isinstance(error, DevshimError):
                error.add_leaf(_names([group[i][2] for i in under_way]))
            raise
    return moved


def _names(cells: list[Cell]) -> str:
    from devshim._trees import path_of

    return named(["".join(f"[{part!r}]" for part in path_of(cell)) for cell in cells[:5]])


def named(paths: list[str]) -> str:
    """Return the paths of leaves of which one failed, for the error."""
    return " or ".join([*paths[:4], *(["another"] if len(paths) > 4 else [])])
