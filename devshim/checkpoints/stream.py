"""Write a safetensors file in one pass over the tensors' memory, and find the checksums on the way.

Requirements of this module:

* The values of a file and their checksums always agree, even if another thread changes a tensor meanwhile: what is
  summed is a copy of a few hundred kilobytes, and that copy is written.
* The host needs no memory for a copy of the tensors.
* The checksums are in the header, at the start of the file, and are known only at the end. So the header is written
  last, into the space reserved for it; the format allows spaces at its end.
"""

from __future__ import annotations

import json
import os
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from devshim.checkpoints.crc import CHUNK, Sum
from devshim.checkpoints.file import CHECKSUM, CODES, LABEL, LONGEST
from devshim.errors import CheckpointError
from devshim.transfers import progress

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["write"]

_LARGEST = 2**32 - 1
"""The checksum with the most digits."""


def write(handle: int, target: str, arrays: Mapping[str, np.ndarray], metadata: dict[str, Any]) -> None:
    """Write arrays in the form of `devshim.checkpoints.file.to_stored_form`, and their metadata, to a new file.

    Args:
        handle: The open file.
        target: The user's path, for the message.
        arrays: Name -> values.
        metadata: The description, in which the tensors have no checksums yet.

    Raises:
        CheckpointError: The header would be longer than the format allows.
        OSError: The system refuses.
    """
    # Larger numbers first, as the library writes them, so that each tensor is aligned in the file.
    ordered = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    header: dict[str, Any] = {"__metadata__": None}
    end = 0
    for name in ordered:
        array, start = arrays[name], end
        end += array.nbytes
        header[name] = {"dtype": CODES[array.dtype.name], "shape": list(array.shape), "data_offsets": [start, end]}
    reserved = len(_header(header, metadata, dict.fromkeys(arrays, _LARGEST)))
    reserved += -reserved % 8
    if reserved > LONGEST:
        msg = f"{target!r} cannot be written: a header of {reserved:,} bytes is longer than the format allows"
        raise CheckpointError(msg, "save parts of the tree to several files; nothing has changed")
    os.lseek(handle, 8 + reserved, os.SEEK_SET)
    sums = {name: _write_values(handle, arrays[name]) for name in ordered}
    os.lseek(handle, 0, os.SEEK_SET)
    _write_all(handle, memoryview(reserved.to_bytes(8, "little") + _header(header, metadata, sums).ljust(reserved)))


def _header(header: dict[str, Any], metadata: dict[str, Any], sums: Mapping[str, int]) -> bytes:
    """Return the file's header with these checksums."""
    for entry in metadata["tensors"]:
        entry["crc32"] = sums[entry["name"]]
    text = json.dumps(metadata, separators=(",", ":"), allow_nan=False)
    header["__metadata__"] = {LABEL: text, CHECKSUM: f"{zlib.crc32(text.encode()):08x}"}
    return json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()


def _write_values(handle: int, array: np.ndarray) -> int:
    """Write an array's bytes, and return their CRC-32."""
    values, found = array.reshape(-1).view(np.uint8), Sum()
    copied = np.empty(min(CHUNK, values.size), np.uint8)
    for start in range(0, values.size, CHUNK):
        part = copied[: values.size - start]
        part[...] = values[start : start + CHUNK]
        found.add(part.data)
        _write_all(handle, part.data)
        progress.advance("save", part.size)
    return found.value


def _write_all(handle: int, data: memoryview) -> None:
    """Write bytes to a file; the system may take fewer at a time."""
    while data:
        data = data[os.write(handle, data) :]
