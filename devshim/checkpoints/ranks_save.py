"""Save by all ranks: each writes one file, and rank 0 renames the index, or the whole new folder.

Requirements of this module:

* The rename is the commit. Before it, an old checkpoint and its parts are intact, even if any process is killed.
* Names of files contain a random number of the save, so that no save overwrites a file of another. What killed saves
  left is removed by the next one; rank 0 holds a lock on the folder, so that it belongs to no running save.
* A new folder appears complete: it is written beside its place, and renamed.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from contextlib import ExitStack, suppress
from io import FileIO
from typing import TYPE_CHECKING, Any

from devshim.checkpoints import file, paths, ranks_index, write
from devshim.checkpoints.ranks_agree import gather_results
from devshim.checkpoints.ranks_parts import PART, checksums
from devshim.checkpoints.ranks_plan import SAME, Plan, require_equal_forms
from devshim.checkpoints.replace import locked_folder, temporary_folder_for
from devshim.errors import ArgumentError, CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.checkpoints.rows import Ranks

__all__ = ["save"]


def save(obj: Any, path: str, world: Ranks) -> None:
    """Write a tree to a folder, together with the other ranks; see `devshim.save`."""
    target = os.path.realpath(path)
    with ExitStack() as opened:
        work = _Save(target, world, opened)
        try:
            facts = gather_results(world, "ds.save", lambda: work.plan(obj))
            _require_equal(world, work, facts)
            work.begin(facts)
            parts = gather_results(world, "ds.save", work.write)
            gather_results(world, "ds.save", lambda: work.commit(parts) if world.rank == 0 else None)
        except BaseException:
            work.undo()
            raise
        work.remove_old()


class _Save:
    """One rank's share of a save."""

    def __init__(self, target: str, world: Ranks, opened: ExitStack) -> None:
        self._target, self._world, self._opened = target, world, opened
        self.tree: Plan
        self._chosen: list[int] = []
        self._folder = self._name = ""
        self._committed = False

    def plan(self, obj: Any) -> dict[str, Any]:
        """Describe the tree; on rank 0, open the folder, too."""
        self.tree = Plan(obj)
        facts: dict[str, Any] = {"digest": self.tree.digest, "rows": self.tree.counts, "host": str(self._world.host)}
        if self._world.rank == 0:
            try:
                facts |= self._open()
            except CheckpointError:
                raise
            except OSError as error:
                raise write.write_error(self._target, error) from error
        return facts

    def _open(self) -> dict[str, str]:
        folder, self._name = self._target, os.urandom(8).hex()
        if not os.path.isdir(os.path.dirname(folder)):
            raise paths.missing_folder_error(os.path.dirname(folder))
        if os.path.exists(folder) and not os.path.isdir(folder):
            msg = f"{folder!r} is a file, and all ranks together save to a folder"
            raise ArgumentError(msg, "pass the path of a new folder")
        if os.path.isdir(folder) and os.listdir(folder):
            self._opened.enter_context(locked_folder(folder))
            _require_own(folder)
            _remove_parts(folder, _current(folder))
        else:
            folder = self._opened.enter_context(temporary_folder_for(folder))
        os.mkdir(os.path.join(folder, ranks_index.unfinished_name(self._name)))
        self._folder = folder
        return {"folder": folder, "save": self._name}

    def begin(self, facts: list[dict[str, Any]]) -> None:
        """Take over what rank 0 chose, and what each rank writes."""
        self._folder, self._name = facts[0]["folder"], facts[0]["save"]
        self._host = facts[0]["host"]
        self._chosen = self.tree.divide([each["rows"] for each in facts])[self._world.rank]

    def write(self) -> list[int]:
        """Write this rank's part, and return its bytes and the checksum of its header."""
        unfinished = os.path.join(self._folder, ranks_index.unfinished_name(self._name))
        if not os.path.isdir(unfinished):
            msg = f"the folder {self._folder!r} of rank 0 on {self._host} is not visible on {self._world.host}"
            raise CheckpointError(msg, "save to a folder that all hosts share")
        arrays = self.tree.copy(self._chosen)
        size, rank = self._world.size, self._world.rank
        described = {"save": self._name, "rank": rank, "ranks": size, "crc32": checksums(arrays)}
        name = ranks_index.part_name(self._name, rank, size)
        path = os.path.join(self._folder, name)
        beside = os.path.join(unfinished, name)  # the library leaves a file of another name there if it is killed
        try:
            write.write_arrays(beside, arrays, {PART: json.dumps(described, separators=(",", ":"))}, self._target)
            write.flush(beside)
            os.replace(beside, path)
            write.flush(self._folder)
            with FileIO(path) as written:
                return [os.fstat(written.fileno()).st_size, zlib.crc32(file.read_header(written) or b"")]
        except CheckpointError:
            raise
        except OSError as error:
            raise write.write_error(self._target, error) from error

    def commit(self, parts: list[list[int]]) -> None:
        """Write the index, and rename it or its folder."""
        try:
            self._commit(parts)
        except CheckpointError:
            raise
        except OSError as error:
            raise write.write_error(self._target, error) from error

    def _commit(self, parts: list[list[int]]) -> None:
        for rank, (size, _) in enumerate(parts):
            path = os.path.join(self._folder, ranks_index.part_name(self._name, rank, len(parts)))
            if not os.path.exists(path) or os.stat(path).st_size != size:
                msg = f"the part of rank {rank} in {self._folder!r} is not visible on {self._world.host}"
                raise CheckpointError(msg, "save to a folder that all hosts share")
        unfinished = os.path.join(self._folder, ranks_index.unfinished_name(self._name))
        new = os.path.join(unfinished, ranks_index.INDEX)
        with open(new, "wb") as index:
            index.write(ranks_index.encode_index(self.tree.contents, self._name, parts))
            index.flush()
            os.fsync(index.fileno())
        where = os.path.join(self._folder, ranks_index.INDEX)
        if self._folder == self._target:
            write.flush(self._folder)
            os.replace(new, where)
            self._committed = True
        else:
            os.replace(new, where)
            shutil.rmtree(unfinished)
            os.chmod(self._folder, _folder_mode(where))
            write.flush(self._folder)
            os.rename(self._folder, self._target)
            self._committed = True
            write.flush(os.path.dirname(self._target))
        write.flush(self._target)

    def undo(self) -> None:
        """Remove what this save wrote, unless it is committed; only rank 0 knows that."""
        if self._world.rank == 0 and not self._committed and self._folder:
            _remove_named(self._folder, lambda name: _is_of(name, self._name))

    def remove_old(self) -> None:
        """Remove the parts of older saves, after the commit."""
        if self._world.rank == 0:
            _remove_parts(self._target, self._name)


def _require_equal(world: Ranks, work: _Save, facts: list[dict[str, Any]]) -> None:
    """Raise the same error on all ranks if the ranks do not save the same tensors."""
    if len({each["digest"] for each in facts}) == 1:
        return
    every = gather_results(world, "ds.save", work.tree.forms)
    for rank, forms in enumerate(every):
        require_equal_forms(forms, every[0], f"rank {rank} on {facts[rank]['host']}")
    rank = next(rank for rank, each in enumerate(facts) if each["digest"] != facts[0]["digest"])
    msg = f"the ranks do not save the same tree: rank {rank} on {facts[rank]['host']} has other keys than rank 0"
    raise CheckpointError(msg, SAME)


def _folder_mode(index: str) -> int:
    """Return the permissions of a new folder: those of a new file in it, with entry for each who may read."""
    mode = os.stat(index).st_mode & 0o777
    return mode | (mode & 0o444) >> 2


def _current(folder: str) -> str | None:
    """Return the name of the save in a folder, or None."""
    try:
        name: str = ranks_index.read(folder)[0]["save"]
    except CheckpointError:
        return None
    return name


def _require_own(folder: str) -> None:
    """Refuse a folder that has files, but not those of a checkpoint."""
    names = os.listdir(folder)
    foreign = [name for name in names if not ranks_index.is_part(name) and not ranks_index.is_unfinished(name)]
    if foreign and ranks_index.INDEX not in names:
        inside = os.path.join(folder, "checkpoint")
        msg = f"{folder!r} is a folder with other files, such as {foreign[0]!r}"
        raise ArgumentError(msg, f"save to a separate folder: ds.save(obj, {inside!r}, world=world)")


def _is_of(name: str, save: str | None) -> bool:
    return ranks_index.is_part(name, save) or ranks_index.is_unfinished(name, save)


def _remove_parts(folder: str, save: str | None) -> None:
    """Remove the files of all saves but one; none if the index cannot be read, because it may need them."""
    if save is None and os.path.exists(os.path.join(folder, ranks_index.INDEX)):
        return
    _remove_named(
        folder,
        lambda name: _is_of(name, None) and not (save is not None and ranks_index.is_part(name, save)),
    )


def _remove_named(folder: str, is_wanted: Callable[[str], bool]) -> None:
    """Remove some files and folders of a folder, as far as the system allows it."""
    with suppress(OSError):
        for name in filter(is_wanted, os.listdir(folder)):
            path = os.path.join(folder, name)
            if ranks_index.is_part(name):
                with suppress(OSError):
                    os.unlink(path)
            else:
                shutil.rmtree(path, ignore_errors=True)
