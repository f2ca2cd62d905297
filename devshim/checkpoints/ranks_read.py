"""Read a checkpoint folder as one file: whole tensors from one part each, rows from the parts that have them.

Requirements of this module:

* Only the wanted rows are read, and the rest of the blocks that they are in, whose checksums are checked.
* A part belongs to the index: its length and the checksum of its header are in it, and the header has the checksums of
  all values. Swapped, truncated and foreign parts are refused.
"""

from __future__ import annotations

import json
import math
import os
import zlib
from contextlib import ExitStack, contextmanager
from io import FileIO
from typing import TYPE_CHECKING, Any

import numpy as np

from devshim.checkpoints import file, paths, ranks_index
from devshim.checkpoints.file import CODES, damaged_error, parse_json, stored_form
from devshim.checkpoints.ranks_parts import PART, block_checksums, rows_per_block
from devshim.checkpoints.values import Values
from devshim.devices.dtypes import numpy_dtype
from devshim.errors import CheckpointError
from devshim.errors.formatting import show
from devshim.transfers import progress

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Folder", "is_folder", "open_folder"]

_EAGER = 256
"""The most parts that are opened together, so that a save at the same time does not disturb the load."""


def is_folder(path: str) -> bool:
    """Return True if a path is that of a checkpoint folder."""
    return os.path.isfile(os.path.join(path, ranks_index.INDEX))


class _OpenPart:
    """An open part whose header has been checked."""

    def __init__(self, values: Values, header: dict[str, Any], crc32: dict[str, list[int]]) -> None:
        self.values = values
        self.crc32 = crc32
        self.forms = {
            name: (each["dtype"], tuple(each["shape"])) for name, each in header.items() if name != "__metadata__"
        }


class Folder:
    """An open folder.

    Attributes:
        path: The path.
        size: The bytes of its parts.
        metadata: The contents of its index.
        identity: The checksum of its index.
        forms: The names of its tensors.
    """

    is_folder = True

    def __init__(self, path: str, contents: dict[str, Any], identity: str, opened: ExitStack) -> None:
        self.path: str = path
        self.metadata: Any = contents
        self.identity: str = identity
        self.size: int = sum(size for size, _ in contents["parts"])
        self._entries = {entry["name"]: entry for entry in contents["tensors"]}
        self.forms: dict[str, Any] = dict.fromkeys(self._entries)
        self._opened = opened
        self._parts: dict[int, _OpenPart] = {}
        self._names: list[set[str]] | None = None
        if len(contents["parts"]) <= _EAGER:
            for rank in range(len(contents["parts"])):
                self._part(rank)

    def read(
        self, name: str, dtype: str, shape: tuple[int, ...], crc32: int | None, rows: tuple[int, int] | None = None
    ) -> np.ndarray:
        """Return a tensor's values, or some rows of them, with the dtype and shape that were saved.

        Raises:
            CheckpointError: A checksum differs, or the parts do not have these values.
            ConversionError: NumPy has no such dtype.
        """
        kind = numpy_dtype(dtype)
        if kind.hasobject or kind.name != dtype:
            raise damaged_error(self.path, f"{show(dtype)} is not a dtype")
        form, full = stored_form(dtype, shape)
        entry = self._entries[name]
        if "cut" not in entry:
            pieces = [(entry["part"], 0, full[0] if full else 1)]
        else:
            bounds = ranks_index.bounds(self.metadata, entry)
            pieces = [(rank, bounds[rank], bounds[rank + 1]) for rank in range(len(bounds) - 1)]
        start, stop = (0, full[0] if full else 1) if rows is None else rows
        found = [
            self._piece(rank, name, form, (last - first, *full[1:]) if full else (), start - first, stop - first)
            for rank, first, last in pieces
            if max(start, first) < min(stop, last)
        ]
        try:
            if not found:
                array = np.empty((stop - start, *full[1:]), numpy_dtype(form))
            else:
                array = found[0] if len(found) == 1 else np.concatenate(found)
            progress.advance("load", array.nbytes)
            return array.reshape(-1).view(kind).reshape(shape if rows is None else (stop - start, *shape[1:]))
        except (ValueError, OverflowError, MemoryError) as error:
            raise damaged_error(self.path, f"the tensor {show(name)} has an impossible shape: {error}") from error

    def _piece(self, rank: int, name: str, form: str, shape: tuple[int, ...], start: int, stop: int) -> np.ndarray:
        """Return the rows of a part from ``start`` to ``stop``, as far as it has them."""
        part = self._part(rank)
        if part.forms.get(name) != (CODES[form], shape):
            raise damaged_error(
                self.path, f"part {rank} does not have the rows of {show(name)} that the index describes"
            )
        count = shape[0] if shape else 1
        start, stop = max(0, start), min(count, stop)
        kind = numpy_dtype(form)
        step = rows_per_block(shape, kind.itemsize)
        first, last = start // step * step, min(count, -(-stop // step) * step)
        wanted = (last - first, *shape[1:]) if shape else ()
        try:
            array = part.values.read(name, kind, wanted, first * math.prod(shape[1:]) * kind.itemsize)
        except Exception as error:
            raise damaged_error(self.path, f"the tensor {show(name)} cannot be read: {error}") from error
        expected = part.crc32[name][first // step : -(-last // step)] if array.size else []
        if block_checksums(array) != expected:
            raise damaged_error(self.path, f"the values of the tensor {show(name)} in part {rank} are damaged")
        return array if (first, last) == (start, stop) else array[start - first : stop - first].copy()

    # ------------------------------------------------------------------ parts
    def _part(self, rank: int) -> _OpenPart:
        if rank not in self._parts:
            self._parts[rank] = self._open(rank)
        return self._parts[rank]

    def _open(self, rank: int) -> _OpenPart:
        from safetensors import safe_open

        size, crc32 = self.metadata["parts"][rank]
        path = os.path.join(self.path, ranks_index.part_name(self.metadata["save"], rank, len(self.metadata["parts"])))
        try:
            handle = self._opened.enter_context(FileIO(path))
            with safe_open(path, framework="np"):  # checks the header
                text = file.read_header(handle) if os.fstat(handle.fileno()).st_size == size else None
        except FileNotFoundError as error:
            raise paths.system_error(path, error, "is missing", "load it again, or another copy of it") from error
        except Exception as error:  # the library's own error, which has no other base
            raise damaged_error(path, str(error)) from error
        if text is None or zlib.crc32(text) != crc32:
            raise damaged_error(path, "it is cut off, or not the part of this save")
        header = parse_json(path, text)
        if set(header) - {"__metadata__"} != self._expected_names(rank):
            raise damaged_error(path, "its tensors are not those of the index")
        return _OpenPart(Values(handle, header), header, _checksums(path, header, self.metadata, rank))

    def _expected_names(self, rank: int) -> set[str]:
        """Return the names of a part's tensors."""
        if self._names is None:
            cut = {name for name, entry in self._entries.items() if "cut" in entry}
            self._names = [set(cut) for _ in self.metadata["parts"]]
            for name, entry in self._entries.items():
                if "cut" not in entry:
                    self._names[entry["part"]].add(name)
        return self._names[rank]


def _checksums(path: str, header: dict[str, Any], contents: dict[str, Any], rank: int) -> dict[str, list[int]]:
    """Return the checksums in a part's header, after checking that it is the part of this save and rank."""
    try:
        described = json.loads(header["__metadata__"][PART])
        found: dict[str, list[int]] = described["crc32"]
        right = [described["save"], described["rank"], described["ranks"]]
        right = right == [contents["save"], rank, len(contents["parts"])]  # type: ignore[assignment]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise damaged_error(path, f"its description is invalid: {error}") from error
    lists = isinstance(found, dict) and all(isinstance(each, list) for each in found.values())
    if not right or not lists or set(found) != set(header) - {"__metadata__"}:
        raise damaged_error(path, "it is not the part of this save and rank")
    return found


@contextmanager
def open_folder(path: str) -> Iterator[Folder]:
    """Open a folder for reading, and check its index.

    Raises:
        CheckpointError: It is damaged or malicious; or a file cannot be read, and then it is an `OSError`, too.
    """
    path = os.path.realpath(path)
    for attempt in range(10):
        contents, identity = ranks_index.read(path)
        with ExitStack() as handles:
            try:
                folder = Folder(path, contents, identity, handles)
            except CheckpointError as error:
                if attempt < 9 and isinstance(error, FileNotFoundError) and ranks_index.read(path)[1] != identity:
                    continue  # another save has replaced it in between
                raise
            yield folder
            return
