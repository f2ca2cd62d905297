"""Files and folders that this user alone may read: sockets, tokens, and what ranks find each other by."""

from __future__ import annotations

import os
import stat

__all__ = ["is_private"]


def is_private(path: str | os.PathLike[str]) -> bool:
    """Return True for a file or folder that this user owns and alone may read; a link is not private.

    Raises:
        OSError: It does not exist.
    """
    found = os.lstat(path)
    return found.st_uid == os.getuid() and not found.st_mode & 0o077 and not stat.S_ISLNK(found.st_mode)
