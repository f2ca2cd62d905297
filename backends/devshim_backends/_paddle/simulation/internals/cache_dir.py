"""A folder on disk that belongs to this user only, for code that is compiled on this machine and then loaded.

Requirements that this module meets:

* Anyone who can write to the folder, or put another in its place, decides what this process runs. So the folder and
  all folders above it belong to this user or to root, and none of them is world-writable, except for folders such as
  ``/tmp``, whose sticky bit keeps other users from replacing files that are not theirs. The last folders are closed
  to other users.
* Several processes may look for, make and fill it at the same time.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from devshim.errors import SimulationError

__all__ = ["private_folder", "require_private_file"]


def private_folder(*names: str) -> Path:
    """Return a folder with these names under the user's cache folder, created if it is missing, and checked.

    Raises:
        SimulationError: It cannot be created, or it is not safe to load code from.
    """
    if not hasattr(os, "getuid"):
        msg = "PaddlePaddle supports plug-ins only on Linux and macOS"
        raise SimulationError(msg, "simulate with another framework: ds.use('numpy')")
    folder = _cache_home()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder = folder.resolve(strict=True)
        for parent in (*reversed(folder.parents), folder):
            _require_safe(parent)
        for name in names:
            folder = folder / name
            folder.mkdir(mode=0o700, exist_ok=True)
            _make_private(folder)
    except OSError as error:
        msg = f"devshim cannot create the folder for its compiled plug-in: {error}"
        raise SimulationError(msg, "set XDG_CACHE_HOME to a folder that you can write to") from error
    return folder


def require_private_file(path: Path) -> None:
    """Raise `SimulationError` if a file is not a regular file of this user that other users cannot write."""
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise _unsafe_error(path, "it is not a file that only this user can write to")


def _cache_home() -> Path:
    """Return XDG_CACHE_HOME, which counts only if it is absolute, or ``~/.cache``."""
    configured = os.environ.get("XDG_CACHE_HOME", "")
    try:
        return Path(configured) if os.path.isabs(configured) else Path.home() / ".cache"
    except RuntimeError as error:  # the home folder is unknown, as for a container's user without a passwd entry
        msg = f"devshim found no folder for its compiled plug-in: {error}"
        raise SimulationError(msg, "set XDG_CACHE_HOME to a folder of your own") from error


def _require_safe(folder: Path) -> None:
    status = folder.lstat()
    if status.st_uid not in (0, os.getuid()):
        raise _unsafe_error(folder, "it belongs to another user")
    if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
        raise _unsafe_error(folder, "every user can write to it")


def _make_private(folder: Path) -> None:
    """Close a folder made here to other users; refuse one that they could already have written to."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise _unsafe_error(folder, "it is not a folder")
    if status.st_uid != os.getuid():
        raise _unsafe_error(folder, "it belongs to another user")
    if status.st_mode & 0o022:
        raise _unsafe_error(folder, "other users can write to it")
    if status.st_mode & 0o077:
        folder.chmod(0o700)


def _unsafe_error(path: Path, why: str) -> SimulationError:
    return SimulationError(
        f"devshim does not load code from {path}: {why}",
        "set XDG_CACHE_HOME to a folder of your own, or correct the owner and the permissions of this one",
    )
