"""Moves of many tensors, with one call for each framework and device: few transfers, and all tensors or none.

Requirements this module answers:

* An adapter gets all tensors for one device at once (`Backend.copy_many`), and may pack small ones together.
* Nothing is left half-moved: if a device is missing for one of the tensors, the error comes before anything is copied.
  If a copy fails, the tensors that had arrived are released.
* The error names the leaf that was being copied, or several if the framework moves several at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from devshim.errors import DevshimError
from devshim.transfers import decisions, engine

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from devshim.contract.backend import Backend, Tensor
    from devshim.devices.device import Device


class _Group(NamedTuple):
    """The tensors that go to one device on one framework.

    They are in lists, because a tuple for each tensor would be work for the garbage collector.
    """

    backend: Backend
    target: Device
    keys: list[Any]
    xs: list[Tensor]
    places: list[Any]

    def move(self, non_blocking: bool, under_way: list[int]) -> Sequence[Tensor]:
        """Copy the tensors in one call."""
        return engine.move_many(self.backend, self.xs, self.target, non_blocking, under_way)


class TransferBatch:
    """Tensors that are to be moved, each under its own key; a tensor that is added again under its key is moved once.

    Args:
        name: Returns the name of a tensor, for an error, from its place as given to `add`.
        blames: True if an error about a missing device names a leaf.
    """

    def __init__(self, name: Callable[[Any], str], blames: bool = False) -> None:
        self._name = name
        self._blames = blames
        self._groups: dict[tuple[int, Device], _Group] = {}
        self._known: set[Hashable] = set()

    def add(self, key: Hashable, backend: Backend, x: Tensor, target: Device, place: Any) -> None:
        """Add a tensor to the move, unless its key is already in it."""
        if key in self._known:
            return
        self._known.add(key)
        which = (id(backend), target)
        group = self._groups.get(which)
        if group is None:
            group = self._groups[which] = _Group(backend, target, [], [], [])
        group.keys.append(key)
        group.xs.append(x)
        group.places.append(place)

    def add_all(self, backend: Backend, xs: dict[int, Tensor], target: Device) -> None:
        """Add tensors of one framework, each under its id; each tensor is its own place."""
        tensors = list(xs.values())
        self._groups[id(backend), target] = _Group(backend, target, list(xs), tensors, tensors)

    def copy(self, non_blocking: bool = False) -> dict[Any, Tensor]:
        """Move all tensors, and return the results by their keys."""
        for group in self._groups.values():  # report a missing device before anything is copied
            try:
                decisions.reach(group.backend, group.target, group.xs)
            except DevshimError as error:
                if self._blames or group.backend.has_plain_arrays:
                    error.add_leaf(self._name(group.places[0]))
                raise
        moved: dict[Any, Tensor] = {}
        for group in self._groups.values():
            under_way = list(range(len(group.xs)))
            try:
                moved.update(zip(group.keys, group.move(non_blocking, under_way), strict=True))
            except BaseException as error:
                moved.clear()  # the traceback would keep them and their memory alive
                if isinstance(error, DevshimError):
                    error.add_leaf(self._names(group, under_way))
                raise
        return moved

    def _names(self, group: _Group, under_way: list[int]) -> str:
        """Return the names of the leaves one of which failed."""
        names = [self._name(group.places[i]) for i in under_way[:4]]
        return " or ".join([*names, *(["another"] if len(under_way) > 4 else [])])


__all__ = ["TransferBatch"]
