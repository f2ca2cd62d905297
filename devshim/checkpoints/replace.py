"""The folder beside a checkpoint in which a new one is written, and what writers that were killed have left.

Requirements this module answers:

* All that is written until the new file is whole is in one folder, whose name says for which file it is; so a writer
  that is killed leaves nothing else, and the next one that saves to the same file removes it.
* Nobody removes what is still written: a writer holds a lock on its folder, which the system releases when it ends,
  however it ends. What was written on another machine, whose locks this one may not see, must be a day old as well.
"""

from __future__ import annotations

import os
import platform
import shutil
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

try:
    import fcntl
except ImportError:  # Windows has no such locks: what is left there stays
    fcntl = None  # type: ignore[assignment]

__all__ = ["room_beside"]

_DAY = 24 * 3600.0


@contextmanager
def room_beside(target: str) -> Iterator[str]:
    """Make a folder to write a file's successor in, remove it at the end, and first those that others have left.

    Args:
        target: The file; the folder is in the same folder, so that a file can be renamed from it.
    """
    folder, name = os.path.split(target)
    kind = f".devshim-{zlib.crc32(os.fsencode(name)):08x}-"
    here = f"{zlib.crc32(platform.node().encode()):08x}"
    path, lock = _made(os.path.join(folder, f"{kind}{here}-"))
    try:
        _remove_left(folder, kind, here, os.stat(path))
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)  # an error on the way out would hide the one that leads there
        os.close(lock)


def _made(start: str) -> tuple[str, int]:
    """Make a folder with a lock on it."""
    while True:
        path = f"{start}{os.urandom(8).hex()}.tmp"
        os.mkdir(path, 0o700)
        try:
            lock = os.open(path, os.O_RDONLY)
        except FileNotFoundError:  # another writer took it for one that was left, between the two calls
            continue
        if not _locked(lock, wait=True) or _is_there(path, lock):
            return path, lock
        os.close(lock)  # the same, a call later


def _locked(lock: int, *, wait: bool) -> bool:
    """Take the lock of an open folder; returns False if another process has it, or the file system has no locks."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # BlockingIOError, or a file system that knows no locks
        return False
    return True


def _is_there(path: str, lock: int) -> bool:
    """Return True if an open folder is still the one of its name."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(found, os.fstat(lock))


def _remove_left(folder: str, kind: str, here: str, own: os.stat_result) -> None:
    """Remove the folders for a file whose writers have ended."""
    try:
        names = os.listdir(folder)
    except OSError:  # a folder that can be written to and not be listed
        return
    for name in names:
        if name.startswith(kind) and name.endswith(".tmp"):
            is_ours = name.startswith(f"{kind}{here}-")
            try:
                _remove(os.path.join(folder, name), own.st_mtime - (0.0 if is_ours else _DAY))
            except OSError:  # not this user's, or gone meanwhile: saving goes on
                continue


def _remove(path: str, latest: float) -> None:
    """Remove a folder made before a time of the file system's clock, unless its writer holds its lock."""
    if os.lstat(path).st_mtime > latest:
        return
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if _locked(lock, wait=False) and _is_there(path, lock):
            shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(lock)
