"""The file of a checkpoint: a safetensors file, written beside the old one and renamed, and read without trust.

Requirements of this module:

* If the process is killed at any moment, the old file is intact. The new one is written in a separate folder beside
  it (`devshim.checkpoints.replace`), flushed to the disk, and renamed; then the folder is flushed, too. Two processes
  that write at the same time do not disturb each other: the last file stays.
* Everything a file says about its contents is checked. The library checks the form of the header. In addition, names
  must be unique, and devshim's metadata has a checksum, as has each tensor.
* Every defect of a file raises one error, `CheckpointError`; an error of the system is an `OSError`, too.
"""

from __future__ import annotations

import json
import os
import stat
import zlib
from contextlib import ExitStack, contextmanager
from io import FileIO
from typing import TYPE_CHECKING, Any

import numpy as np

from devshim.checkpoints import foreign, paths
from devshim.checkpoints.crc import Sum
from devshim.checkpoints.values import Values
from devshim.devices.dtypes import DTYPES, numpy_dtype
from devshim.errors import CheckpointError
from devshim.errors.formatting import show
from devshim.transfers import progress

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = [
    "CHECKSUM",
    "CODES",
    "LABEL",
    "LONGEST",
    "OpenFile",
    "damaged_error",
    "is_known",
    "open_file",
    "parse_json",
    "read_header",
    "stored_form",
    "to_stored_form",
]

LABEL, CHECKSUM = "devshim", "devshim.crc32"
"""The keys in a file's metadata under which devshim writes its text, and the checksum of that text."""

LONGEST = 100_000_000
"""Bytes of a header: the library's own limit, checked here before that many bytes are read."""

CODES = {"bool": "BOOL", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64"}
CODES |= {f"{sign}int{bits}": f"{code}{bits}" for sign, code in (("", "I"), ("u", "U")) for bits in (8, 16, 32, 64)}
"""The dtypes that have a code in the format since its first version; others are stored as simpler dtypes or bytes."""


def damaged_error(path: str, why: str, hint: str = "load another copy of it; nothing has changed") -> CheckpointError:
    """Return the error for a file that is not a valid checkpoint."""
    return CheckpointError(f"{path!r} is not a checkpoint that ds.load can read: {why}", hint)


# ---------------------------------------------------------------------- stored form
def is_known(dtype: str) -> bool:
    """Return True if a file may have this dtype: one of `devshim`'s, or a small one of ``ml_dtypes``."""
    return (
        dtype in DTYPES
        or dtype in ("int2", "int4", "uint2", "uint4")
        or dtype.startswith(("float8_", "float6_", "float4_"))
    )


def stored_form(dtype: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    """Return a tensor's dtype and shape in the file: complex numbers as pairs, dtypes without a code as bytes."""
    if dtype in CODES:
        return dtype, shape
    if dtype in ("complex64", "complex128"):
        return f"float{int(dtype[7:]) // 2}", (*shape, 2)
    return "uint8", (*shape, numpy_dtype(dtype).itemsize)


def to_stored_form(array: np.ndarray) -> np.ndarray:
    """Return an array, C-ordered, in the form that it has in the file."""
    dtype, shape = stored_form(array.dtype.name, array.shape)
    flat = (array if array.flags.c_contiguous else array.copy(order="C")).reshape(-1)
    return flat.view(numpy_dtype(dtype)).reshape(shape)


# ---------------------------------------------------------------------- reading
class OpenFile:
    """An open file whose header has been checked.

    Attributes:
        path: The path.
        size: Its bytes.
        metadata: The metadata that devshim wrote; None for a safetensors file of another program.
        forms: Name -> the dtype's code and the shape of every tensor, as in the header.
    """

    is_folder = False

    def __init__(self, path: str, file: FileIO, header: Mapping[str, Any], metadata: Any) -> None:
        self.path: str = path
        self.size: int = os.fstat(file.fileno()).st_size
        self.metadata: Any = metadata
        self._values = Values(file, header)
        self.forms: dict[str, tuple[str, tuple[int, ...]]] = {
            name: (entry["dtype"], tuple(entry["shape"])) for name, entry in header.items() if name != "__metadata__"
        }

    def read(
        self, name: str, dtype: str, shape: tuple[int, ...], crc32: int | None, rows: tuple[int, int] | None = None
    ) -> np.ndarray:
        """Return a tensor's values in new memory, with the dtype and shape that were saved.

        Args:
            name: Its name.
            dtype: Its dtype.
            shape: Its shape.
            crc32: Its checksum; None for a file of another program.
            rows: The first row, and the one after the last, if only some rows are wanted.

        Raises:
            CheckpointError: The checksum differs, or the values are stored in another form.
            ConversionError: NumPy has no such dtype.
        """
        kind = numpy_dtype(dtype)
        if kind.hasobject or kind.name != dtype:  # a name of ml_dtypes that is not a dtype
            raise damaged_error(self.path, f"{show(dtype)} is not a dtype")
        form, full = stored_form(dtype, shape)
        if self.metadata is not None and self.forms.get(name) != (CODES[form], full):
            raise damaged_error(
                self.path, f"the tensor {show(name)} is not the {dtype} of shape {shape} that was saved"
            )
        found = Sum()
        try:
            array = self._values.read(name, numpy_dtype(form), full, check=None if crc32 is None else found.add)
        except Exception as error:
            raise damaged_error(self.path, f"the tensor {show(name)} cannot be read: {error}") from error
        if crc32 is not None and found.value != crc32:
            raise damaged_error(self.path, f"the values of the tensor {show(name)} are damaged: the checksum differs")
        progress.advance("load", array.nbytes)
        array = array.reshape(-1).view(kind).reshape(shape)
        return array if rows is None else array[slice(*rows)].copy()


@contextmanager
def open_file(path: str) -> Iterator[OpenFile]:
    """Open a file for reading, and check its header.

    Raises:
        CheckpointError: It is not a safetensors file, is cut off or damaged; or it does not exist or cannot be read,
            and then the error is the system's `OSError`, too.
    """
    from safetensors import SafetensorError, safe_open

    for _ in range(100):
        with ExitStack() as closing:
            try:
                handle = closing.enter_context(_open(path))
                header = _header(path, handle)
            except (FileNotFoundError, NotADirectoryError) as error:
                raise paths.missing_file_error(path, error) from error
            except OSError as error:
                hint = "check its permissions with `ls -l`"
                raise paths.system_error(path, error, "cannot be read", hint) from error
            try:
                with safe_open(path, framework="np"):  # checks the header
                    pass
                same = os.path.samestat(os.stat(path), os.fstat(handle.fileno()))
            except (SafetensorError, OverflowError) as error:
                raise damaged_error(path, str(error)) from error
            if same:
                yield OpenFile(path, handle, header, _parse_metadata(path, header.get("__metadata__", {})))
                return
        # Another file replaced it between the two reads: try again.
    raise damaged_error(path, "other programs replace it continually")


def _open(path: str) -> FileIO:
    """Open a regular file for reading, without a buffer."""
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        msg = f"{path!r} is a folder, not a checkpoint file"
        raise CheckpointError(msg, foreign.folder_hint(path))
    if not stat.S_ISREG(mode):
        raise damaged_error(path, "it is not a regular file", "pass the path of a file that ds.save wrote")
    return FileIO(path)


def _header(path: str, file: FileIO) -> dict[str, Any]:
    """Return the header of a file, after checking that its names are unique."""
    text = read_header(file)
    if text is None:
        raise _not_safetensors_error(path)
    header = parse_json(path, text)
    if not isinstance(header, dict):
        raise damaged_error(path, "its header is not a JSON object")
    return header


def read_header(file: FileIO) -> bytes | None:
    """Return the text of a file's header; None if the file does not begin as a safetensors file does."""
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(8), "little")
    return None if size < 8 or length > size - 8 or length > LONGEST else file.read(length)


def _not_safetensors_error(path: str) -> CheckpointError:
    """Return the error for a file that does not begin as a safetensors file does."""
    found = foreign.recognize(path)
    if found is None:
        return damaged_error(path, "it is cut off, or not a safetensors file")
    return damaged_error(path, f"it is {found[0]}", found[1])


def parse_json(path: str, text: str | bytes) -> Any:
    """Parse strict JSON: no duplicate names, no NaN, and no deeper nesting than Python can follow."""
    try:
        return json.loads(text, object_pairs_hook=_unique_names, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise damaged_error(path, f"its header is not JSON: {error}") from error


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        msg = "a name occurs twice in one object"
        raise ValueError(msg)
    return found


def _refuse_constant(constant: str) -> Any:
    msg = f"{constant} is not JSON"
    raise ValueError(msg)


def _parse_metadata(path: str, metadata: Mapping[str, str]) -> Any:
    """Return the metadata that devshim wrote into a file, checked; None if devshim did not write the file."""
    if LABEL not in metadata and CHECKSUM not in metadata:
        return None
    text = metadata.get(LABEL, "")
    if metadata.get(CHECKSUM) != f"{zlib.crc32(text.encode()):08x}":
        raise damaged_error(path, "its description of its contents is damaged: the checksum differs")
    return parse_json(path, text)
