"""Say that the driver's file is there, without which JAX asks no driver; for processes with this folder on the path."""

from __future__ import annotations

import os.path

_exists = os.path.exists


def exists(path: object) -> bool:
    """Return what `os.path.exists` returns, and True for the first card's file."""
    return path == "/dev/nvidia0" or _exists(path)  # type: ignore[arg-type]


os.path.exists = exists
