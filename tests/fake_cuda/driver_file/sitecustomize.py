"""A startup hook that reports the driver's file as present, without which JAX does not query the driver.

It applies to processes with this folder on the path.
"""

from __future__ import annotations

import os.path

_exists = os.path.exists


def exists(path: object) -> bool:
    """Return the result of `os.path.exists`, but True for the first GPU's file."""
    return path == "/dev/nvidia0" or _exists(path)  # type: ignore[arg-type]


os.path.exists = exists
