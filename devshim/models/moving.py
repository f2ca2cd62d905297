"""Moves of models and optimizers: every leaf is copied first, then all are replaced, or none.

Requirements of this module:

* Nothing is left half-moved. No leaf is replaced until the last copy has arrived. So a full device, a failing device
  and Ctrl-C leave everything unchanged, without a copy back that could fail in turn. The finished copies are released.
* Replacing the leaves is short and allocates nothing; Ctrl-C waits until it is done.
* No device ever holds two copies because of a move: a source keeps its data until the end, and a target gets only its
  own data. There is no other overhead: a model of more than half a GPU's memory can move to the GPU and back.
* Ties are moved once and stay ties; state and gradients follow their parameter.
* Leaves for one device are copied in one call (`transfers.batch.move_many`), so that a model of a thousand small
  parameters needs few transfers if the framework's adapter packs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devshim.contract.blocks import join_path
from devshim.errors import ArgumentError, DevshimError
from devshim.transfers import batch
from devshim.transfers.interrupts import defer_sigint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from devshim.contract.backend import Backend
    from devshim.contract.models import Leaf
    from devshim.devices.device import Device

    Object = tuple[str, Any, Backend]
    """The key path of a model or optimizer in the tree (empty: it is the tree), the object, and its backend."""
    Where = Callable[..., Device]
    """The device of a leaf, from its model's key path, its own path, and True for a count (`Placement.of_leaf`).

    For a tensor in a tree, the first is the tensor's key path, and its own path is empty."""
    Given = Callable[[str, Leaf, Device], Any]
    Key = tuple[int, str]
    Arrived = Callable[[dict[Key, Any]], dict[Key, Any]]


_COUNTS = ("state", "random", "stream", "unsaved")
"""Kinds of leaves that a `Placement` without their paths keeps together: step counts, generators, sums of metrics."""


def _key(leaf: Leaf) -> Key:
    """Return what ties have in common: the owner of the data, and the kind."""
    return (id(leaf.owner), leaf.kind)


class ModelMove:
    """One move of models and optimizers: `prepare` copies the leaves, `commit` swaps the copies in.

    Args:
        objects: The models and optimizers.
        where: The device of each leaf.
        given: Returns new content for a leaf on its device, or None to move the present content.
        arrived: If given, turns the results of `given`, by key, into tensors.
    """

    def __init__(
        self, objects: Sequence[Object], where: Where, given: Given | None = None, arrived: Arrived | None = None
    ) -> None:
        self._objects = objects
        self._where = where
        self._given = given
        self._arrived = arrived
        self._staged: list[tuple[Leaf, Any, Any]] = []
        self._staying: dict[Key, tuple[Backend, Any]] = {}

    def prepare(self, copy: bool | None = None) -> None:
        """Copy every leaf that is not on its target device; on any failure, release the copies.

        Raises:
            CopyNeededError: ``copy`` is False, and a leaf is on another device.
            DevshimError: Any error of `devshim.transfers.engine.move`, with the leaf's path.
        """
        found = [(backend, prefix, leaf) for prefix, obj, backend in self._objects for leaf in backend.leaves(obj)]
        targets: dict[int, Device] = {}  # of each parameter, by its owner: for the leaves that follow it
        for _, prefix, leaf in found:
            if leaf.follows is None:
                targets.setdefault(id(leaf.owner), self._where(prefix, leaf.path, leaf.kind in _COUNTS))
        pending = batch.TransferBatch(str)
        arrived: dict[Key, Any] = {}
        try:
            for backend, prefix, leaf in found:
                target = targets.get(id(leaf.owner if leaf.follows is None else leaf.follows))
                target = self._alone(backend, prefix, leaf) if target is None else target
                try:
                    self._look(backend, prefix, leaf, target, pending, arrived, copy)
                except DevshimError as error:
                    error.add_leaf(join_path(prefix, leaf.path))
                    raise
            if self._arrived is not None:
                arrived = self._arrived(arrived)
            arrived.update(pending.copy())
            self._staged = [(leaf, x, arrived[_key(leaf)]) for leaf, x, _ in self._staged]
        except BaseException:
            self._staged.clear()  # the traceback would keep the copies and their memory alive
            arrived.clear()
            raise

    def _alone(self, backend: Backend, prefix: str, leaf: Leaf) -> Device:
        """Return the device of state that moves without its parameter: the placement's, or else the parameter's."""
        try:
            return self._where(prefix, leaf.path)
        except ArgumentError:
            if leaf.follows is None:
                raise
            return backend.device_of(leaf.follows if backend.is_tensor(type(leaf.follows)) else leaf.read())

    def _look(
        self,
        backend: Backend,
        prefix: str,
        leaf: Leaf,
        target: Device,
        pending: batch.TransferBatch,
        arrived: dict[Key, Any],
        copy: bool | None,
    ) -> None:
        """Decide whether a leaf must move or gets other content; ties are checked once."""
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
            pending.add(key, backend, x, target, join_path(prefix, leaf.path))
        self._staged.append((leaf, x, None))

    def list_staying(self) -> list[tuple[Backend, Any]]:
        """Return the leaves that are on their target already, ties once; for a clone, they are copies made there."""
        return list(self._staying.values())

    def commit(self, install_hooks: bool = True) -> bool:
        """Replace every leaf with its copy, and install the hooks of the models; on any failure, restore everything.

        Args:
            install_hooks: False if every leaf stays on its device.

        Returns:
            True if any leaf was replaced.
        """
        undo: list[Callable[[], None]] = []
        moved = bool(self._staged)
        with defer_sigint():
            try:
                self._write(undo)
                for prefix, obj, backend in self._objects if install_hooks else ():
                    undo.append(backend.install_hooks(obj, _bind_prefix(prefix, self._where)))
            except BaseException:
                for each in reversed(undo):
                    each()
                raise
            finally:
                undo.clear()  # like `_staged`, it holds memory, which a traceback would keep alive
                self._staged.clear()
        return moved

    def _write(self, undo: list[Callable[[], None]]) -> None:
        """Replace the leaves, in its own frame, so that no traceback of a failing `install_hooks` keeps it."""
        for leaf, old, new in self._staged:
            undo.append(_make_undo(leaf, old))
            leaf.write(new)


def _make_undo(leaf: Leaf, old: Any) -> Callable[[], None]:
    return lambda: leaf.write(old)


def _bind_prefix(prefix: str, where: Where) -> Callable[[str], Device]:
    return lambda path: where(prefix, path)


__all__ = ["ModelMove", "defer_sigint"]
