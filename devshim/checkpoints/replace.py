"""The temporary folder in which a checkpoint is written, and the removal of those that killed writers left behind.

Requirements of this module:

* Everything that is written before the new file is complete is in one folder, whose name says which file it is for. A
  writer that is killed leaves nothing else, and the next process that saves to the same file removes it.
* A folder in use is never removed: a writer holds a lock on its folder, which the system releases when the process
  ends in any way. A folder from another machine, whose locks may be invisible here, must also be a day old.
"""

from __future__ import annotations

import os
import platform
import shutil
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING

from devshim.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterator

try:
    import fcntl
except ImportError:  # Windows has no such locks: leftover folders stay
    fcntl = None  # type: ignore[assignment]

__all__ = ["locked_folder", "temporary_folder_for"]

_DAY = 24 * 3600.0


@contextmanager
def temporary_folder_for(target: str) -> Iterator[str]:
    """Make a folder in which to write a file's successor, and remove it at the end; first remove leftover folders.

    Args:
        target: The file; the new folder is beside it, so that a file can be renamed from there to the target.
    """
    folder, name = os.path.split(target)
    kind = f".devshim-{zlib.crc32(os.fsencode(name)):08x}-"
    here = f"{zlib.crc32(platform.node().encode()):08x}"
    path, lock = _make_locked_folder(os.path.join(folder, f"{kind}{here}-"))
    try:
        _remove_leftovers(folder, kind, here, os.stat(path))
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)  # an error here would hide the error that led here
        os.close(lock)


@contextmanager
def locked_folder(path: str) -> Iterator[None]:
    """Hold the lock of an existing folder.

    Raises:
        CheckpointError: Another process is saving to it.
    """
    lock = os.open(path, os.O_RDONLY)
    try:
        if fcntl is not None:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                msg = f"another process is saving to {path!r}"
                raise CheckpointError(msg, "save to another folder, or when the other save is complete") from error
            except OSError:  # a file system without locks
                pass
        yield
    finally:
        os.close(lock)


def _make_locked_folder(start: str) -> tuple[str, int]:
    """Make a folder and take a lock on it."""
    while True:
        path = f"{start}{os.urandom(8).hex()}.tmp"
        os.mkdir(path, 0o700)
        try:
            lock = os.open(path, os.O_RDONLY)
        except FileNotFoundError:  # another writer took it for a leftover, between the two calls
            continue
        if not _take_lock(lock, wait=True) or _is_there(path, lock):
            return path, lock
        os.close(lock)  # the same, one call later


def _take_lock(lock: int, *, wait: bool) -> bool:
    """Take the lock of an open folder; return False if another process has it, or the file system has no locks."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # BlockingIOError, or a file system without locks
        return False
    return True


def _is_there(path: str, lock: int) -> bool:
    """Return True if an open folder is still the one at its path."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(found, os.fstat(lock))


def _remove_leftovers(folder: str, kind: str, here: str, own: os.stat_result) -> None:
    """Remove the folders for a file whose writers have ended."""
    try:
        names = os.listdir(folder)
    except OSError:  # a folder that can be written to but not listed
        return
    for name in names:
        if name.startswith(kind) and name.endswith(".tmp"):
            is_ours = name.startswith(f"{kind}{here}-")
            try:
                _remove(os.path.join(folder, name), own.st_mtime - (0.0 if is_ours else _DAY))
            except OSError:  # not this user's, or already removed: saving continues
                continue


def _remove(path: str, latest: float) -> None:
    """Remove a folder older than a time of the file system's clock, unless its writer holds its lock."""
    if os.lstat(path).st_mtime > latest:
        return
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if _take_lock(lock, wait=False) and _is_there(path, lock):
            shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(lock)
