"""Load a checkpoint into existing objects: check everything, read it, then exchange it, all or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devshim.checkpoints import by_path
from devshim.checkpoints.arrivals import Arrivals
from devshim.checkpoints.matching import match_leaves
from devshim.checkpoints.reader import extra_state_of
from devshim.checkpoints.rows import Rows, is_leaf
from devshim.checkpoints.stored import CODE, Source, StoredCode, StoredObject, StoredTensor
from devshim.contract.blocks import join_path
from devshim.devices.device import CPU, Device
from devshim.errors import CheckpointError
from devshim.errors.formatting import show, type_name, with_article
from devshim.models import moving
from devshim.placement.placement import Placement
from devshim.registry import registry
from devshim.registry.registry import model_backend
from devshim.transfers import engine
from devshim.trees import key_paths, multi_map
from devshim.trees.containers import children
from devshim.trees.key_paths import brackets
from devshim.trees.not_moved import is_code

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from devshim.checkpoints.arrivals import PendingTensor
    from devshim.checkpoints.file import OpenFile
    from devshim.checkpoints.ranks_read import Folder
    from devshim.contract.backend import Backend, Tensor
    from devshim.trees.key_paths import Cell

__all__ = ["Restore"]


class Restore:
    """One load into existing objects.

    Args:
        file: The file to read.
        device: The target device or placement; None: everything stays on its device.
        cuts: For each `Rows` of the target, by its id: its first row, the one after the last, and the number of rows
            that all ranks have together.
        ready: Called when everything has arrived, before anything changes; may raise.
    """

    def __init__(
        self,
        file: OpenFile | Folder,
        device: Device | Placement | None,
        cuts: Mapping[int, tuple[int, int, int]],
        ready: Callable[[], None],
    ) -> None:
        self._cuts, self._ready = cuts, ready
        self._file, self._device, self._arriving = file, device, Arrivals(file)
        self._undo: list[Callable[[], None]] = []
        self._matched: list[tuple[str, Any, StoredObject, Backend]] = []
        self._objects: list[tuple[str, Any, Backend]] = []
        self._sources: dict[tuple[str, str], Source] = {}
        self._current_devices: dict[tuple[str, str], Device] = {}
        self._tensors: list[tuple[Cell, Tensor, Backend, Source]] = []
        self._changed = False

    def fill(self, into: Any, stored: Any) -> Any:
        """Return ``into``, or a tree like it if anything but models and optimizers changed.

        Args:
            into: A tree.
            stored: The file's tree (`devshim.checkpoints.reader.Contents.tree`).
        """
        new: list[PendingTensor] = []
        try:
            stored = by_path.rearrange(into, stored)
            _refuse_model(into, stored)
            multi_map.map_leaves([into, stored], self._check_leaf, _structure_mismatch, is_leaf)
            for obj in self._matched:
                self._prepare(*obj)
            for cell, x, backend, source in self._tensors:
                target = self._target_of(cell, backend.device_of(x), not backend.shape(x))
                multi_map.locate_errors(cell, engine.require_for, backend, target, (x,))
                new.append(self._arriving.read(backend, source, target, brackets(cell)))
            self._arriving.flush()
            arrived = (later.tensor for later in new)
            result = multi_map.map_leaves(
                [into, stored], lambda cell, nodes: self._result(nodes, arrived), _structure_mismatch, is_leaf
            )
            move = moving.ModelMove(self._objects, self._where, self._new_value, self._arriving.resolve)
            move.prepare()
            self._ready()
            with moving.defer_sigint():
                move.commit(install_hooks=self._device is not None)
                self._undo.clear()
        except BaseException:
            self._arriving.forget()
            for undo in reversed(self._undo):
                undo()
            raise
        return result if self._changed else into

    # ------------------------------------------------------------------ checking
    def _check_leaf(self, cell: Cell, nodes: list[Any]) -> Any:
        """Compare one leaf with the file's value at the same position."""
        mine, theirs = nodes
        if mine is None:
            return None
        tensor = mine.part if isinstance(mine, Rows) else mine
        backend = registry.backend_for(tensor)
        if backend is not None:
            self._check_tensor(cell, tensor, theirs, backend, self._cuts[id(mine)] if tensor is not mine else None)
            return mine
        owner = model_backend(mine)
        if owner is not None:
            self._match_object(cell, mine, theirs, owner)
        elif (
            (theirs is CODE) != is_code(mine)
            or isinstance(theirs, (StoredTensor, StoredObject))
            or not _is_plain(theirs)
        ):
            raise _mismatch(cell, f"{show(mine)} would be replaced by {_describe(theirs)}")
        elif theirs is not CODE and not multi_map.same_value(mine, theirs):
            self._changed = True
        return mine

    def _check_tensor(
        self, cell: Cell, mine: Tensor, theirs: Any, backend: Backend, cut: tuple[int, int, int] | None
    ) -> None:
        if not isinstance(theirs, StoredTensor):
            raise _mismatch(cell, f"a tensor would be replaced by {_describe(theirs)}")
        if cut is not None and theirs.shape[:1] != cut[2:]:
            why = f"the ranks have {cut[2]} rows together, and the file has {theirs.form()}"
            raise _mismatch(cell, why, "give each rank its rows: x[world.part(len(x))]")
        source = theirs.source_for(backend, mine, None if cut is None else cut[:2])
        if source is None:
            have = f"{backend.dtype_name(mine)} of shape {backend.shape(mine)}"
            raise _mismatch(cell, f"a tensor is {have}, and in the file {theirs.form()}")
        self._tensors.append((cell, mine, backend, source))
        self._changed = True

    def _match_object(self, cell: Cell, mine: Any, theirs: Any, backend: Backend) -> None:
        stored = _as_object(theirs)
        if stored is None:
            raise _mismatch(cell, f"a {type_name(mine)} would be replaced by {_describe(theirs)}")
        self._matched.append((key_paths.path_text(cell), mine, stored, backend))

    def _prepare(self, prefix: str, mine: Any, stored: StoredObject, backend: Backend) -> None:
        """Restore a model's or optimizer's extra state, and find the sources of its leaves."""
        if stored.library == backend.library(mine):
            extra_state = extra_state_of(self._file, stored, lambda tensor: self._on_host(backend, tensor))
            if extra_state is not None:
                forms = {path: (tensor.shape, tensor.dtype) for path, (_, tensor) in stored.leaves.items()}
                others = [each for _, each, _, owner in self._matched if owner is backend and each is not mine]
                with moving.defer_sigint():
                    self._undo.append(backend.create_optimizer_state(mine, others, forms))
                    self._undo.append(backend.set_extra_state(mine, extra_state, forms))
        for path, source in match_leaves(backend, mine, stored, prefix).items():
            self._sources[prefix, path] = source
        self._current_devices.update(
            {(prefix, leaf.path): backend.device_of(leaf.read()) for leaf in backend.leaves(mine)}
        )
        self._objects.append((prefix, mine, backend))

    def _on_host(self, backend: Backend, tensor: StoredTensor) -> Tensor:
        return self._arriving.read(backend, Source(tensor), CPU, "").tensor

    # ------------------------------------------------------------------ reading
    def _target_of(self, cell: Cell, here: Device, is_number: bool) -> Device:
        if self._device is None:
            return here
        return (
            self._device
            if isinstance(self._device, Device)
            else self._device.of_leaf(key_paths.path_text(cell), "", is_number)
        )

    def _where(self, prefix: str, path: str, count: bool = False) -> Device:
        if isinstance(self._device, Device):
            return self._device
        return (
            self._current_devices[prefix, path] if self._device is None else self._device.of_leaf(prefix, path, count)
        )

    def _new_value(self, prefix: str, leaf: Any, target: Device) -> PendingTensor | None:
        """Return the new value of a leaf; None for a leaf that no file contains, such as a gradient."""
        source = self._sources.get((prefix, leaf.path))
        if source is None:
            return None
        backend = next(backend for place, _, backend in self._objects if place == prefix)
        return self._arriving.read(backend, source, target, join_path(prefix, leaf.path))

    @staticmethod
    def _result(nodes: list[Any], arrived: Any) -> Any:
        """Return the final value of a leaf of the tree."""
        mine, theirs = nodes
        if mine is None or model_backend(mine) is not None:
            return mine
        if isinstance(mine, Rows):
            return Rows(next(arrived))
        if registry.backend_for(mine) is not None:
            return next(arrived)
        return mine if theirs is CODE else theirs


def _refuse_model(into: Any, stored: Any) -> None:
    """Refuse to fill a tree from the file of a model or optimizer: only the user knows which tensor is which."""
    if isinstance(stored, StoredObject) and model_backend(into) is None and into is not None:
        names = ", ".join(show(path) for path in list(stored.leaves)[:3])
        kind = with_article(type_name(into))
        msg = f"the file does not fit `into`: it contains {stored.in_words()}, and `into` is {kind}"
        raise CheckpointError(msg, f"ds.load(path) without `into` returns a dict of its tensors by name: {names}")


def _as_object(stored: Any) -> StoredObject | None:
    """Return a description that can fill a model: a stored model, or named tensors from any program."""
    if isinstance(stored, StoredObject):
        return stored
    named = None if isinstance(stored, StoredTensor) else by_path.named_tensors(stored)
    if named is None:
        return None
    return StoredObject("", "another program", "dict", {name: ("", each) for name, each in named.items()}, [], None)


def _is_plain(node: Any) -> bool:
    return multi_map.is_leaf(node) or children(node) is None


def _describe(stored: Any) -> str:
    return (
        stored.in_words()
        if isinstance(stored, (StoredCode, StoredObject, StoredTensor))
        else with_article(type_name(stored))
    )


_EQUAL = "pass an object with the structure of the saved one; None skips the part of the file at that position"


def _mismatch(cell: Cell, why: str, hint: str = _EQUAL) -> CheckpointError:
    where = brackets(cell)
    return CheckpointError(f"the file does not fit `into`: {f'at {where} ' if where else ''}{why}", hint)


def _structure_mismatch(cell: Cell, which: int, why: str) -> Exception:
    return _mismatch(cell, f"the file has {why}")
