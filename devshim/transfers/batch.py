"""Moving many tensors: in one call for each framework and device, so that few transfers carry them, or none arrives.

Requirements this module answers:

* An adapter is given all that goes to one device at once (`Backend.copy_many`), and may pack small tensors together.
* Nothing half-moved: a device that one of them lacks is refused before anything is copied, and what had arrived when
  a copy fails is released.
* The error names the leaf: the one that was under way, or those that were, where a framework moves several at once.
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
    """What goes to one device on one framework, in lists: a tuple for each tensor would be the collector's work."""

    backend: Backend
    target: Device
    keys: list[Any]
    xs: list[Tensor]
    places: list[Any]

    def move(self, non_blocking: bool, under_way: list[int]) -> Sequence[Tensor]:
        """Copy them in one call."""
        return engine.move_many(self.backend, self.xs, self.target, non_blocking, under_way)


class Going:
    """Tensors that shall move, each under a key of its own, and what is moved under several once.

    Args:
        name: Gives the name of a tensor, for an error, from what was given to `add` as its place.
        blames: Whether an error names a leaf for a device that does not exist.
    """

    def __init__(self, name: Callable[[Any], str], blames: bool = False) -> None:
        self._name = name
        self._blames = blames
        self._groups: dict[tuple[int, Device], _Group] = {}
        self._known: set[Hashable] = set()

    def add(self, key: Hashable, backend: Backend, x: Tensor, target: Device, place: Any) -> None:
        """Have a tensor moved, unless one of this key is already."""
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
        """Move tensors of one framework, each under its id; a tensor is its own place."""
        tensors = list(xs.values())
        self._groups[id(backend), target] = _Group(backend, target, list(xs), tensors, tensors)

    def copy(self, non_blocking: bool = False) -> dict[Any, Tensor]:
        """Move them all, and return the results by their keys."""
        for group in self._groups.values():  # a device that does not exist is refused before anything is copied
            try:
                decisions.reach(group.backend, group.target, group.xs)
            except DevshimError as error:
                if self._blames or group.backend.name == "numpy":
                    error.add_leaf(self._name(group.places[0]))
                raise
        moved: dict[Any, Tensor] = {}
        for group in self._groups.values():
            under_way = list(range(len(group.xs)))
            try:
                moved.update(zip(group.keys, group.move(non_blocking, under_way), strict=True))
            except BaseException as error:
                moved.clear()  # the traceback would keep them, and their memory
                if isinstance(error, DevshimError):
                    error.add_leaf(self._names(group, under_way))
                raise
        return moved

    def _names(self, group: _Group, under_way: list[int]) -> str:
        """The leaves of which one failed."""
        names = [self._name(group.places[i]) for i in under_way[:4]]
        return " or ".join([*names, *(["another"] if len(under_way) > 4 else [])])


__all__ = ["Going"]
