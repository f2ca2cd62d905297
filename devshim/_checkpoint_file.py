"""A checkpoint as a file: safetensors by its own library, written beside and renamed, read without trust.

Requirements this module answers:

* Killed at any moment, the file that was there is whole: the new one is written under another name in the same folder,
  flushed to the disk, and renamed; the folder is flushed, too. Two who write at once do not meet, the last one stays.
* A file says what it holds, and every part of it is checked: the library looks at the header's form, and on top of that
  no name may stand twice, what devshim wrote down carries a checksum, and so does each tensor.
* One error, `CheckpointError`, for everything that is wrong with a file; `OSError` for what the system says.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from devshim._dtypes import DTYPES, numpy_dtype
from devshim._show import show
from devshim.errors import ArgumentError, CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["CODES", "Opened", "as_stored", "checksum", "damaged", "is_known", "opened", "write"]

LABEL, CHECKSUM = "devshim", "devshim.crc32"
"""Where in a file's metadata stands what devshim wrote, and the checksum of that text."""

_LONGEST = 100_000_000
"""Bytes of a header, the library's own limit: asked here before so many are read."""

CODES = {"bool": "BOOL", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64"}
CODES |= {f"{sign}int{bits}": f"{code}{bits}" for sign, code in (("", "I"), ("u", "U")) for bits in (8, 16, 32, 64)}
"""The dtypes that have a code in the format since its first version; others are stored as what they are made of."""


def damaged(path: object, why: str) -> CheckpointError:
    """A file that is not what it should be."""
    return CheckpointError(
        f"{os.fspath(path)!r} is no checkpoint that can be loaded: {why}",  # type: ignore[call-overload]
        "load another copy of it; nothing has changed",
    )


# ---------------------------------------------------------------------- as stored
def is_known(dtype: str) -> bool:
    """Whether a name is that of a dtype a file may have: those of `devshim`, and the small ones of ``ml_dtypes``."""
    return (
        dtype in DTYPES
        or dtype in ("int2", "int4", "uint2", "uint4")
        or dtype.startswith(("float8_", "float6_", "float4_"))
    )


def stored_form(dtype: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    """Return the dtype and shape in the file of a tensor: complex numbers as pairs, what is unknown there as bytes."""
    if dtype in CODES:
        return dtype, shape
    if dtype in ("complex64", "complex128"):
        return f"float{int(dtype[7:]) // 2}", (*shape, 2)
    return "uint8", (*shape, numpy_dtype(dtype).itemsize)


def as_stored(array: np.ndarray) -> np.ndarray:
    """Return an array, C-ordered, in the form in which the file has it."""
    dtype, shape = stored_form(array.dtype.name, array.shape)
    flat = (array if array.flags.c_contiguous else array.copy(order="C")).reshape(-1)
    return flat.view(numpy_dtype(dtype)).reshape(shape)


def checksum(array: np.ndarray) -> int:
    """Return the CRC-32 of an array's bytes."""
    return zlib.crc32(array.reshape(-1).view(np.uint8).data) if array.size else 0


# ---------------------------------------------------------------------- writing
def write(path: Any, arrays: Mapping[str, np.ndarray], told: object) -> None:
    """Write arrays, in the form of `as_stored`, and what is told about them, in place of a file, all or nothing.

    Raises:
        ArgumentError: There is something at the path that is no file.
        OSError: The folder is not there, or the system refuses.
        CheckpointError: The library could not write, such as on a full disk.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    target = os.path.realpath(os.fspath(path))
    folder, mode = os.path.dirname(target), _mode(target)
    if not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, "there is no such folder to save into", folder)
    text = json.dumps(told, separators=(",", ":"), allow_nan=False)
    beside = os.path.join(folder, f".devshim-{os.urandom(8).hex()}.tmp")
    try:
        os.close(os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666 if mode is None else 0o600))
        mode = stat.S_IMODE(os.stat(beside).st_mode) if mode is None else mode  # the library makes a file of its own
        try:
            save_file(dict(arrays), beside, metadata={LABEL: text, CHECKSUM: f"{zlib.crc32(text.encode()):08x}"})
        except SafetensorError as error:
            raise CheckpointError(
                f"{os.fspath(path)!r} could not be written: {error}", "see that the disk has room; nothing has changed"
            ) from error
        os.chmod(beside, mode)
        _flush(beside)
        os.replace(beside, target)
    except BaseException:
        if os.path.exists(beside):
            os.unlink(beside)
        raise
    _flush(folder)


def _mode(target: str) -> int | None:
    """The permissions of the file that is replaced; None without one."""
    try:
        found = os.stat(target)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise ArgumentError(f"{target!r} is no file, and would be replaced by one", "pass the path of a file")
    return stat.S_IMODE(found.st_mode)


def _flush(path: str) -> None:
    """Wait until a file, or a folder's list of them, is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# ---------------------------------------------------------------------- reading
class Opened:
    """An open file whose header has been checked.

    Attributes:
        path: Where.
        told: What devshim wrote about it; None for another's safetensors file.
        forms: Name -> the dtype's code and the shape, of every tensor, as the header has them.
    """

    def __init__(self, path: Any, handle: Any, header: Mapping[str, Any], told: Any) -> None:
        self.path, self.told, self._handle = path, told, handle
        self.forms = {
            name: (entry["dtype"], tuple(entry["shape"])) for name, entry in header.items() if name != "__metadata__"
        }

    def read(self, name: str, dtype: str, shape: tuple[int, ...], crc32: int | None) -> np.ndarray:
        """Return a tensor's values, of the dtype and shape that were saved; never the file's own memory.

        Raises:
            CheckpointError: They are not what the checksum says, or are in another form.
            ConversionError: NumPy has no such dtype.
        """
        kind = numpy_dtype(dtype)
        if kind.hasobject or kind.name != dtype:  # a name of ml_dtypes that is no dtype
            raise damaged(self.path, f"{show(dtype)} is no dtype")
        form, full = stored_form(dtype, shape)
        if self.told is not None and self.forms.get(name) != (CODES[form], full):
            raise damaged(self.path, f"the tensor {show(name)} is not the {dtype} of shape {shape} that was saved")
        numpy_dtype(form)  # imports ml_dtypes, which the library expects to be there
        try:
            array: np.ndarray = self._handle.get_tensor(name)
        except Exception as error:
            raise damaged(self.path, f"the tensor {show(name)} cannot be read: {error}") from error
        if crc32 is not None and checksum(array) != crc32:
            raise damaged(self.path, f"the values of the tensor {show(name)} are damaged (its checksum differs)")
        return array.reshape(-1).view(kind).reshape(shape)


@contextmanager
def opened(path: Any) -> Iterator[Opened]:
    """Open a file for reading, its header checked.

    Raises:
        CheckpointError: It is no safetensors file, cut off, or damaged.
        OSError: It is not there, or cannot be read.
    """
    from safetensors import SafetensorError, safe_open

    for _ in range(100):
        header = _header(path)
        told = header.get("__metadata__", {})
        try:
            handle: Any = safe_open(os.fspath(path), framework="np")
        except (SafetensorError, OverflowError) as error:
            raise damaged(path, str(error)) from error
        with handle:
            if (handle.metadata() or {}) == told:
                yield Opened(path, handle, header, _told(path, told))
                return
        # Another one was put in its place between the two looks: look again.
    raise damaged(path, "it is replaced by another all the time")


def _header(path: Any) -> dict[str, Any]:
    """The header of a file, in which no name stands twice."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise damaged(path, "it is no file")
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > size - 8 or length > _LONGEST:
            raise damaged(path, "it is cut off, or no safetensors file")
        text = file.read(length)
    header = _parsed(path, text)
    if not isinstance(header, dict):
        raise damaged(path, "its header is no JSON object")
    return header


def _parsed(path: Any, text: str | bytes) -> Any:
    """JSON, strictly: no name twice, no NaN, nested no deeper than Python follows."""
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise damaged(path, f"its header is no JSON: {error}") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice in one object")
    return found


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _told(path: Any, metadata: Mapping[str, str]) -> Any:
    """What devshim wrote into a file's metadata, checked; None where it did not write the file."""
    if LABEL not in metadata and CHECKSUM not in metadata:
        return None
    text = metadata.get(LABEL, "")
    if metadata.get(CHECKSUM) != f"{zlib.crc32(text.encode()):08x}":
        raise damaged(path, "what it says about its contents is damaged (its checksum differs)")
    return _parsed(path, text)
