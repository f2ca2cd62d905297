"""Moving whole things: every leaf of models and optimizers is copied first, then all are exchanged, or none.

Requirements this module answers:

* Nothing half-moved. Until the last copy has arrived nothing is exchanged, so that a full card, a device that fails,
  and Ctrl-C leave everything as it was, without a copy back that could fail in its turn. What was copied is released.
* Exchanging is short and does not allocate; Ctrl-C waits for its end.
* No device ever holds two copies because of a move: a source keeps what it had until the end, a target gets what it
  shall hold. Beyond that, nothing: a model of more than half a card can go to the card and come back.
* Ties are moved once and stay ties; state and gradients follow their parameter.
* What goes to one device is copied in one call (`transfers.engine.move_many`), so that a model of a thousand small
  parameters needs few transfers where a framework's adapter packs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devshim.errors import ArgumentError, DevshimError
from devshim.transfers import batch
from devshim.transfers.interrupts import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from devshim.contract.backend import Backend
    from devshim.contract.models import Leaf
    from devshim.devices.device import Device

    Whole = tuple[str, Any, Backend]
    """Where in the tree a model or optimizer stands (empty: it is the tree), itself, and its backend."""
    Where = Callable[..., Device]
    """The device of a leaf, by the place of its whole, its path in it, and whether it is a count (`Placement.of_leaf`).

    A tensor in a tree is a whole of its own, and has no path."""
    Given = Callable[[str, Leaf, Device], Any]
    Key = tuple[int, str]
    Arrived = Callable[[dict[Key, Any]], dict[Key, Any]]


def joined(prefix: str, path: str) -> str:
    """Return the path of a leaf below the place of its whole."""
    return f"{prefix}.{path}" if prefix and path else prefix or path


def _key(leaf: Leaf) -> Key:
    """What ties have in common: whose data it is, and what."""
    return (id(leaf.owner), leaf.kind)


class Move:
    """One move of whole things: `stage` copies, `exchange` makes it true.

    Args:
        wholes: What moves.
        where: The device of each leaf.
        given: Returns what a leaf shall hold on its device instead of what it holds, or None: then that moves.
        arrived: Where given, makes tensors of what `given` has returned, by key.
    """

    def __init__(
        self, wholes: Sequence[Whole], where: Where, given: Given | None = None, arrived: Arrived | None = None
    ) -> None:
        self._wholes = wholes
        self._where = where
        self._given = given
        self._arrived = arrived
        self._staged: list[tuple[Leaf, Any, Any]] = []
        self._staying: dict[Key, tuple[Backend, Any]] = {}

    def stage(self, copy: bool | None = None) -> None:
        """Copy every leaf that is not where it shall be; on any failure, what was copied is released.

        Raises:
            CopyNeededError: ``copy`` is False, and a leaf is elsewhere.
            DevshimError: What `devshim.transfers.engine.move` raises, with the leaf's path.
        """
        found = [(backend, prefix, leaf) for prefix, whole, backend in self._wholes for leaf in backend.leaves(whole)]
        targets: dict[int, Device] = {}  # of each parameter, by its owner: for what goes beside it
        for _, prefix, leaf in found:
            if leaf.beside is None:
                targets.setdefault(id(leaf.owner), self._where(prefix, leaf.path, leaf.kind in ("state", "random")))
        going = batch.Going(str, blames=True)
        arrived: dict[Key, Any] = {}
        try:
            for backend, prefix, leaf in found:
                target = targets.get(id(leaf.owner if leaf.beside is None else leaf.beside))
                target = self._alone(backend, prefix, leaf) if target is None else target
                try:
                    self._look(backend, prefix, leaf, target, going, arrived, copy)
                except DevshimError as error:
                    error.add_leaf(joined(prefix, leaf.path))
                    raise
            if self._arrived is not None:
                arrived = self._arrived(arrived)
            arrived.update(going.copy())
            self._staged = [(leaf, x, arrived[_key(leaf)]) for leaf, x, _ in self._staged]
        except BaseException:
            self._staged.clear()  # the traceback would keep it, and the memory
            arrived.clear()
            raise

    def _alone(self, backend: Backend, prefix: str, leaf: Leaf) -> Device:
        """Where state goes that moves without its parameter: to the parameter, if the placement does not name it."""
        try:
            return self._where(prefix, leaf.path)
        except ArgumentError:
            if leaf.beside is None:
                raise
            return backend.device_of(leaf.beside if backend.is_tensor(type(leaf.beside)) else leaf.read())

    def _look(
        self,
        backend: Backend,
        prefix: str,
        leaf: Leaf,
        target: Device,
        going: batch.Going,
        arrived: dict[Key, Any],
        copy: bool | None,
    ) -> None:
        """Find out whether a leaf has to move, or is given another tensor; ties are asked once."""
        x, key = leaf.read(), _key(leaf)
        if key not in arrived and self._given is not None:
            made = self._given(prefix, leaf, target)
            if made is not None:
                arrived[key] = made
        if key not in arrived:
            if backend.device_of(x) is target:
                self._staying[key] = (backend, x)
                return
            if copy is False:
                from devshim.errors import messages

                raise messages.copy_needed(backend.device_of(x), target)
            going.add(key, backend, x, target, joined(prefix, leaf.path))
        self._staged.append((leaf, x, None))

    def staying(self) -> list[tuple[Backend, Any]]:
        """Return what is where it shall be, ties once: of a clone, what was copied on its device."""
        return list(self._staying.values())

    def exchange(self, rewire: bool = True) -> bool:
        """Put every copy in its leaf's place and rewire the models; on any failure all is put back.

        Args:
            rewire: False where every leaf stays on its device.

        Returns:
            Whether anything was exchanged.
        """
        undo: list[Callable[[], None]] = []
        moved = bool(self._staged)
        with uninterrupted():
            try:
                self._write(undo)
                for prefix, whole, backend in self._wholes if rewire else ():
                    undo.append(backend.rewire(whole, _below(prefix, self._where)))
            except BaseException:
                for each in reversed(undo):
                    each()
                raise
            finally:
                undo.clear()  # as `_staged`, it holds memory, and a traceback would keep it
                self._staged.clear()
        return moved

    def _write(self, undo: list[Callable[[], None]]) -> None:
        """Exchange the leaves: in a frame of its own, which no traceback of a failing `rewire` keeps."""
        for leaf, old, new in self._staged:
            undo.append(_back(leaf, old))
            leaf.write(new)


def _back(leaf: Leaf, old: Any) -> Callable[[], None]:
    return lambda: leaf.write(old)


def _below(prefix: str, where: Where) -> Callable[[str], Device]:
    return lambda path: where(prefix, path)


__all__ = ["Move", "joined", "uninterrupted"]
