"""Moves of many tensors, with one call for each framework and device: few transfers, and all tensors or none.

Requirements of this module:

* An adapter gets all tensors for one device together (`Backend.copy_many`), and may pack small ones together.
* Nothing is left half-moved: if a device is missing for one of the tensors, the error comes before anything is copied.
  If a copy fails, the tensors that had arrived are released.
* The error names the leaf that was being copied, or several if the framework moves several at the same time.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from devshim.devices.device import CPU
from devshim.errors import DevshimError
from devshim.transfers import engine, observing, progress
from devshim.transfers.sources import sources_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from devshim.contract.backend import Backend, Tensor
    from devshim.devices.device import Device
    from devshim.transfers.observing import Active

__all__ = ["TransferBatch", "move_many", "place_leaves"]


def place_leaves(
    leaves: Iterable[tuple[int, Tensor, Backend, Device]],
    copy: bool | None,
    non_blocking: bool,
    is_compiling: bool,
    name: Callable[[int], str],
) -> dict[int, Tensor]:
    """Return the copies of those tensors of a tree that are not where they should be, by number.

    Args:
        leaves: The number of each tensor, the tensor, its backend, and where it should be.
        copy: As for `devshim.place`.
        non_blocking: As for `devshim.place`.
        is_compiling: True: nothing is copied now, so there is nothing to do in one call.
        name: Returns the name of the i-th tensor, for an error.
    """
    pending = TransferBatch(name)
    compiled: dict[int, Tensor] = {}
    for i, (number, x, backend, target) in enumerate(leaves):
        if copy is not True and engine.is_placed(backend, x, target, copy):
            continue
        if is_compiling:
            compiled[number] = engine.move(backend, x, target, non_blocking)
        else:
            pending.add(number, backend, x, target, i)
    return compiled if is_compiling else pending.copy(non_blocking)


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
        return move_many(self.backend, self.xs, self.target, non_blocking, under_way)


class TransferBatch:
    """The tensors to move, each under its own key; a tensor that is added again under its key is moved once.

    Args:
        name: Returns the name of a tensor, for an error, from its place as given to `add`.
    """

    def __init__(self, name: Callable[[Any], str]) -> None:
        self._name = name
        self._groups: list[_Group] = []
        self._known: set[Hashable] = set()

    def add(self, key: Hashable, backend: Backend, x: Tensor, target: Device, place: Any) -> None:
        """Add a tensor to the move, unless its key is already in it."""
        if key in self._known:
            return
        self._known.add(key)
        for group in self._groups:  # there are few
            if group.backend is backend and group.target is target:
                break
        else:
            group = _Group(backend, target, [], [], [])
            self._groups.append(group)
        group.keys.append(key)
        group.xs.append(x)
        group.places.append(place)

    def copy(self, non_blocking: bool = False) -> dict[Any, Tensor]:
        """Move all tensors, and return the results by their keys."""
        for group in self._groups:  # report a missing device before anything is copied
            try:
                engine.require_for(group.backend, group.target, group.xs)
            except DevshimError as error:
                error.add_leaf(self._name(group.places[0]))
                raise
        moved: dict[Any, Tensor] = {}
        with self._progress():
            for group in self._groups:
                under_way = list(range(len(group.xs)))
                try:
                    moved.update(zip(group.keys, group.move(non_blocking, under_way), strict=True))
                except BaseException as error:
                    moved.clear()  # the traceback would keep them and their memory alive
                    if isinstance(error, DevshimError):
                        error.add_leaf(self._names(group, under_way))
                    raise
        return moved

    def _progress(self) -> AbstractContextManager[object]:
        """Return the block in which a progress bar is shown, if the tensors are large; without a terminal, at no cost.

        While a compiler traces the move, nothing is copied.
        """
        if not progress.is_wanted() or any(group.backend.compiling() for group in self._groups):
            return nullcontext()
        total = sum(group.backend.nbytes(x) for group in self._groups for x in group.xs)
        return progress.bar("copy", total)

    def _names(self, group: _Group, under_way: list[int]) -> str:
        """Return the names of the leaves one of which failed."""
        names = [self._name(group.places[i]) for i in under_way[:4]]
        return " or ".join([*names, *(["another"] if len(under_way) > 4 else [])])


# ---------------------------------------------------------------------- one group
def move_many(
    backend: Backend,
    xs: Sequence[Tensor],
    target: Device,
    non_blocking: bool = False,
    under_way: list[int] | None = None,
) -> Sequence[Tensor]:
    """Copy many tensors to a device together, each checked on arrival; a ledger records each source separately.

    Args:
        backend: The backend of the tensors.
        xs: The tensors.
        target: The device to copy to.
        non_blocking: As for `move`.
        under_way: If given, receives the indices of the tensors one of which failed, if a copy fails.
    """
    active = observing.ACTIVE
    engine.require_observed(active, backend, target)
    if backend.dtypes_lacking:
        _require_dtypes(backend, xs, target, under_way)
    recording, record = None, None if active is None else active.record
    if record is not None and any(backend.shards(x) is not None for x in xs):
        return _one_by_one(backend, xs, target, non_blocking, under_way)
    if record is not None and xs and all(sources_of(backend, x) for x in xs):
        sources = {backend.device_of(x): None for x in xs}
        if len(sources) > 1:
            return _by_source(backend, xs, list(sources), target, non_blocking, under_way)
        recording = record(backend, next(iter(sources)), target, sum(backend.nbytes(x) for x in xs), len(xs))
    with recording or nullcontext():
        return _move_many(active, backend, xs, target, non_blocking, under_way)


def _require_dtypes(backend: Backend, xs: Sequence[Tensor], target: Device, under_way: list[int] | None) -> None:
    """Refuse tensors of a dtype that the device cannot hold, before any is copied."""
    for i, x in enumerate(xs):
        try:
            engine.require_dtype(backend, target, backend.dtype_name(x))
        except DevshimError:
            if under_way is not None:
                under_way[:] = [i]
            raise


def _move_many(
    active: Active | None,
    backend: Backend,
    xs: Sequence[Tensor],
    target: Device,
    non_blocking: bool,
    under_way: list[int] | None,
) -> Sequence[Tensor]:
    """Copy many tensors as `move_many` does, without recording them."""
    announced = _Announced(active, backend, xs, target)
    arrived: list[Tensor] = []
    try:
        _receive(backend, announced, target, non_blocking, arrived)
    except BaseException as error:
        # Those that were taken and had not arrived; if all arrived, the last one, which was on the wrong device.
        failed = list(range(announced.taken))[len(arrived) :] or [max(announced.taken - 1, 0)]
        arrived.clear()  # the traceback would keep them and their memory alive
        if under_way is not None:
            under_way[:] = failed
        if isinstance(error, Exception):
            engine.raise_full(backend, error, target, sum(backend.nbytes(xs[i]) for i in failed))
        raise
    return arrived


class _Announced:
    """A sequence of tensors that counts how many were taken; a simulated fault is raised when its tensor is taken."""

    def __init__(self, active: Active | None, backend: Backend, xs: Sequence[Tensor], target: Device) -> None:
        self._active, self._backend, self._xs, self._target = active, backend, xs, target
        self.taken = 0

    def __len__(self) -> int:
        return len(self._xs)

    def __getitem__(self, index: Any) -> Any:
        return self._xs[index]

    def __iter__(self) -> Iterator[Tensor]:
        for i, x in enumerate(self._xs):
            if i == self.taken:  # the first time
                self.taken += 1
                if progress.SHOWN and i:
                    progress.advance("copy", self._backend.nbytes(self._xs[i - 1]))
                if self._active is not None and sources_of(self._backend, x):
                    engine.trigger_fault(self._active, self._backend, x, self._target)
            yield x


def _receive(backend: Backend, xs: Any, target: Device, non_blocking: bool, arrived: list[Tensor]) -> None:
    """Copy all, and check where each has arrived; one on another device counts as the one that failed."""
    arrived.extend(backend.copy_many(xs, target, non_blocking))  # not assigned: if one fails, the earlier ones are kept
    if target is CPU and engine.are_on_host(backend, arrived):
        return
    for i, result in enumerate(arrived):
        if backend.device_of(result) is not target:
            del arrived[i:]
            xs.taken = i + 1
            engine.raise_misplaced(backend, target, result)


def _one_by_one(
    backend: Backend, xs: Sequence[Tensor], target: Device, non_blocking: bool, under_way: list[int] | None
) -> Sequence[Tensor]:
    """Copy tensors, some of which have their data on several devices, and record each with all its sources."""
    moved: list[Tensor] = []
    try:
        for x in xs:
            moved.append(engine.move(backend, x, target, non_blocking))
    except BaseException:
        if under_way is not None:
            under_way[:] = [len(moved)]
        moved.clear()  # the traceback would keep them and their memory alive
        raise
    return moved


def _by_source(
    backend: Backend,
    xs: Sequence[Tensor],
    sources: list[Device],
    target: Device,
    non_blocking: bool,
    under_way: list[int] | None,
) -> Sequence[Tensor]:
    moved: list[Tensor] = list(xs)
    for source in sources:
        at = [i for i, x in enumerate(xs) if backend.device_of(x) is source]
        failed: list[int] = []
        try:
            results = move_many(backend, [xs[i] for i in at], target, non_blocking, failed)
        except BaseException:
            moved.clear()
            if under_way is not None:
                under_way[:] = [at[i] for i in failed]
            raise
        for i, result in zip(at, results, strict=True):
            moved[i] = result
    return moved
