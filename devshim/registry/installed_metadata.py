"""Find out whether an installed distribution has entry points of a group, without `importlib.metadata`.

Importing `importlib.metadata` takes as long as the rest of devshim's first call, and in most installations no other
distribution registers a backend.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder

__all__ = ["may_have_entry_points"]

_FOLDERS = (".dist-info", ".egg-info", "egg-info")
"""The ends of folders' names with metadata, in lower case; the last is ``EGG-INFO`` in a folder that is on the path."""


def may_have_entry_points(group: str) -> bool:
    """Return False if no distribution on `sys.path` has entry points of a group; True if `importlib.metadata` must say.

    It must where distributions are not folders: in archives, and behind the finders of other packages.
    """
    if any(hasattr(finder, "find_distributions") and finder is not PathFinder for finder in sys.meta_path):
        return True
    return any(_may_have(entry or os.curdir, group.encode()) for entry in sys.path if isinstance(entry, str))


def _may_have(entry: str, group: bytes) -> bool:
    try:
        names = os.listdir(entry)
    except NotADirectoryError:
        return True
    except OSError:
        return False
    return any(name.lower().endswith(_FOLDERS) and group in _entry_points(entry, name) for name in names)


def _entry_points(entry: str, folder: str) -> bytes:
    """Return the contents of a distribution's file of entry points; empty without one."""
    try:
        with open(os.path.join(entry, folder, "entry_points.txt"), "rb") as file:
            return file.read()
    except OSError:
        return b""
