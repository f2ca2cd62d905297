"""A folder on disk that belongs to this user only, for code that is compiled on this machine and then loaded.

Requirements that this module meets:

* Anyone who can write to the folder, or put another in its place, decides what this process runs.  So the folder and
  all folders above it belong to this user or to root, and none of them is world-writable, except for folders such as
  ``/tmp``, whose sticky bit keeps other users from replacing files that are not theirs.  The last folders are closed
  to other users.
* Several processes may look for, make and fill it at once.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from devshim.errors import SimulationError

__all__ = ["private_folder", "require_own"]


def private_folder(*names: str) -> Path:
    """Return a folder with these names under the user's cache folder, created if it is missing, and checked.

    Raises:
        SimulationError: It cannot be created, or it is not safe to load code from.
    """
    if not hasattr(os, "getuid"):
        raise SimulationError(
            "PaddlePaddle takes plug-ins on Linux and macOS alone, and this is neither",
            "simulate with another framework: ds.use('numpy')",
        )
    above = _cache_home()
    try:
        above.mkdir(parents=True, exist_ok=True)
        above = above.resolve(strict=True)
        for folder in (*reversed(above.parents), above):
            _require_safe(folder)
        for name in names:
            above = above / name
            above.mkdir(mode=0o700, exist_ok=True)
            _close(above)
    except OSError as error:
        raise SimulationError(
            f"the folder for what devshim compiles cannot be made: {error}",
            "set XDG_CACHE_HOME to a folder that you can write to",
        ) from error
    return above


def require_own(path: Path) -> None:
    """Raise `SimulationError` if a file is not a regular file of this user that other users cannot write."""
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise _unsafe(path, "it is not a file that this user alone can write")


def _cache_home() -> Path:
    """Return XDG_CACHE_HOME, which counts only if it is absolute, or ``~/.cache``."""
    told = os.environ.get("XDG_CACHE_HOME", "")
    try:
        return Path(told) if os.path.isabs(told) else Path.home() / ".cache"
    except RuntimeError as error:  # the home folder is unknown, as for a container's user without a passwd entry
        raise SimulationError(
            f"there is no folder for what devshim compiles: {error}", "set XDG_CACHE_HOME to a folder of your own"
        ) from error


def _require_safe(folder: Path) -> None:
    found = folder.lstat()
    if found.st_uid not in (0, os.getuid()):
        raise _unsafe(folder, "it belongs to another user")
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        raise _unsafe(folder, "everybody can write to it")


def _close(folder: Path) -> None:
    """Close a folder made here to other users; refuse one that they could already have written to."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise _unsafe(folder, "it is no folder")
    if found.st_uid != os.getuid():
        raise _unsafe(folder, "it belongs to another user")
    if found.st_mode & 0o022:
        raise _unsafe(folder, "others can write to it")
    if found.st_mode & 0o077:
        folder.chmod(0o700)


def _unsafe(path: Path, why: str) -> SimulationError:
    return SimulationError(
        f"code is not loaded from {path}: {why}",
        "set XDG_CACHE_HOME to a folder of your own, or mend the owner and the mode of this one",
    )
