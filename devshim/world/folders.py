"""The temporary folder of a job or a cluster, with Ray's sockets and the token; the next start removes abandoned ones.

A process that is killed cannot remove its folder. Each folder contains a file that is locked while a process which uses
the folder runs, and the kernel releases the lock when the last of them has ended. So a start removes the folders of
this user that are not locked. Process numbers would not do: two containers may share the folder for temporary files,
and neither sees the processes of the other one.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from devshim.registry.private_paths import is_private

__all__ = ["lock_of", "new", "remove"]

_PREFIX, _LOCK = "devshim-", "in-use"
_LONGEST = 20
"""The maximum length of the parent's path: Ray's sockets in the folder ``ray`` add 85, and the system allows 107."""
_PLAIN = re.compile(r"[A-Za-z0-9._/-]+")
"""A parent's path that Ray accepts: it cannot start in a folder whose path has other letters."""
_locks: dict[Path, int] = {}


def new() -> Path:
    """Make a folder that only this user can read; Ray gets a folder in it, which it opens to every user."""
    import fcntl

    usual = tempfile.gettempdir()
    parent = Path(usual if len(usual) <= _LONGEST and _PLAIN.fullmatch(usual) else "/tmp")
    _remove_abandoned(parent)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    first = folder / f"{_LOCK}.new"
    lock = os.open(first, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    first.rename(folder / _LOCK)  # now it is locked: another start never sees it unlocked
    _locks[folder] = lock
    return folder


def lock_of(folder: Path) -> int:
    """Return the descriptor of the lock; a process that inherits it also keeps the folder."""
    return _locks[folder]


def remove(folder: Path) -> None:
    """Remove a folder, and what is in it."""
    shutil.rmtree(folder, ignore_errors=True)
    lock = _locks.pop(folder, None)
    if lock is not None:
        os.close(lock)


def _remove_abandoned(parent: Path) -> None:
    """Remove the folders of this user that no process uses any more."""
    import fcntl

    for file in parent.glob(f"{_PREFIX}*/{_LOCK}"):
        with suppress(OSError):  # another process uses or removes it
            if not is_private(file.parent):
                continue
            lock = os.open(file, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(file.parent, ignore_errors=True)
            finally:
                os.close(lock)
