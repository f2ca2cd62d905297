"""Write a checkpoint file: beside the old one, flushed to the disk, and renamed."""

from __future__ import annotations

import errno
import os
import re
import stat
from typing import TYPE_CHECKING, Any

from devshim.checkpoints import paths, stream
from devshim.checkpoints.replace import temporary_folder_for
from devshim.errors import ArgumentError, CheckpointError
from devshim.transfers import progress

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

__all__ = ["flush", "write", "write_arrays", "write_error"]


_SEPARATORS = tuple(filter(None, (os.sep, os.altsep)))
"""The characters that separate folders in a path."""
_SYSTEM = re.compile(r"\(os error (\d+)\)")


def write(path: str, arrays: Mapping[str, np.ndarray], metadata: dict[str, Any]) -> None:
    """Replace a file, all or nothing, by arrays in the form of `to_stored_form` with metadata and checksums.

    Raises:
        ArgumentError: The path exists and is not a regular file.
        CheckpointError: The folder does not exist, the system refuses, or the library could not write, for example on a
            full disk; an error of the system is an `OSError`, too.
    """
    target = os.path.realpath(path)
    if path.endswith(_SEPARATORS) and not os.path.isdir(target):
        msg = f"{path!r} is the path of a folder, and ds.save writes a file"
        raise ArgumentError(msg, f"ds.save(obj, {path.rstrip(''.join(_SEPARATORS))!r})")
    try:
        _write(target, arrays, metadata)
    except CheckpointError:
        raise
    except OSError as error:
        raise write_error(path, error) from error


def write_error(path: str, error: OSError) -> CheckpointError:
    """Return the error for a path that the system does not let devshim write."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    hint = "free disk space" if full else "save to a folder that you may write to"
    return paths.system_error(path, error, "cannot be written", f"{hint}; nothing has changed")


def _write(target: str, arrays: Mapping[str, np.ndarray], metadata: dict[str, Any]) -> None:
    folder = os.path.dirname(target)
    if not os.path.isdir(folder):
        raise paths.missing_folder_error(folder)
    mode = _mode(target)
    with temporary_folder_for(target) as temporary:
        beside = os.path.join(temporary, "new")
        handle = os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666 if mode is None else 0o600)
        try:
            with progress.bar("save", sum(each.nbytes for each in arrays.values())):
                stream.write(handle, target, arrays, metadata)
            if mode is not None:
                os.chmod(beside, mode)
            os.fsync(handle)
        finally:
            os.close(handle)
        os.replace(beside, target)
    flush(folder)


def write_arrays(path: str, arrays: Mapping[str, np.ndarray], metadata: dict[str, str], target: str) -> None:
    """Write a safetensors file of one rank, with the library.

    Args:
        path: The file to write.
        arrays: Name -> values, in the form of `to_stored_form`.
        metadata: The texts in the header.
        target: The user's path, for the message.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    def written() -> int:
        return os.stat(path).st_size if os.path.exists(path) else 0

    try:
        with progress.bar("save", sum(each.nbytes for each in arrays.values()), written):
            save_file(dict(arrays), path, metadata=metadata)
    except SafetensorError as error:
        number = _SYSTEM.search(str(error))  # the library gives the system's error only as a text
        if number is not None:
            raise write_error(target, OSError(int(number[1]), os.strerror(int(number[1])))) from error
        msg = f"{target!r} cannot be written: {error}"
        raise CheckpointError(msg, "free disk space; nothing has changed") from error


def _mode(target: str) -> int | None:
    """Return the permissions of the file that is replaced; None if there is no such file."""
    try:
        found = os.stat(target)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(found.st_mode):
        inside = os.path.join(target, "checkpoint.safetensors")
        msg = f"{target!r} is a folder, not a file"
        raise ArgumentError(msg, f"ds.save(obj, {inside!r})")
    if not stat.S_ISREG(found.st_mode):
        msg = f"{target!r} is not a regular file, and saving would replace it with one"
        raise ArgumentError(msg, "pass another path")
    return stat.S_IMODE(found.st_mode)


def flush(path: str) -> None:
    """Wait until a file, or a folder's list of files, is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
