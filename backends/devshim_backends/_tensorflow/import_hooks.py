"""Hooks around the import of TensorFlow after PaddlePaddle: they refuse an import that would end the process.

Each framework contains its own protobuf, and the second one that is loaded can be bound to symbols of the first. All
combinations of TensorFlow 2.16 to 2.21 and Paddle 2.6 and 3.0 were tried: importing TensorFlow before 2.21 after Paddle
2.6 is a segmentation fault, which RTLD_DEEPBIND does not prevent, and every other TensorFlow import works. For imports
in the other order, Paddle's adapter has its own ``import_hooks.py``.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from devshim.errors import BackendConflictError
from devshim.registry.versions import version_of

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["around", "clashes"]


@contextmanager
def around() -> Iterator[None]:
    """Check for conflicts, before the caller imports TensorFlow inside this context.

    Raises:
        BackendConflictError: Paddle is already imported, in a version after which TensorFlow's import crashes.
    """
    for trouble in clashes():
        raise BackendConflictError(
            trouble,
            "import tensorflow before paddle, use Paddle 3.0 or newer, or TensorFlow 2.21 or newer",
        )
    yield


def clashes() -> tuple[str, ...]:
    """Return known problems with the frameworks that this process has imported, one sentence each."""
    if "tensorflow" in sys.modules or sys.modules.get("paddle") is None:
        return ()
    paddle, ours = version_of("paddle"), version_of("tensorflow")
    if paddle is None or ours is None or _numbers(paddle) >= (3, 0) or _numbers(ours) >= (2, 21):
        return ()
    return (f"importing TensorFlow {ours} after PaddlePaddle {paddle} ends the process with a segmentation fault",)


def _numbers(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version."""
    return tuple(int(part) if part.isdecimal() else 0 for part in version.split(".")[:2])
