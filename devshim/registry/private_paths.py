"""Files and folders that only this user can read: sockets, tokens, and files by which ranks find each other."""

from __future__ import annotations

import os
import stat

__all__ = ["is_private"]


def is_private(path: str | os.PathLike[str]) -> bool:
    """Return True for a file or folder that this user owns and only this user can read; a link is not private.

    Raises:
        OSError: It does not exist.
    """
    found = os.lstat(path)
    return found.st_uid == os.getuid() and not found.st_mode & 0o077 and not stat.S_ISLNK(found.st_mode)
