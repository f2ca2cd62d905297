"""Importing TensorFlow beside PaddlePaddle: refuse what would end the process.

Each carries its own protobuf, and whichever is loaded second can be bound to the first one's symbols.  Measured in
every combination of TensorFlow 2.16 to 2.21 and Paddle 2.6 and 3.0: after Paddle 2.6, importing TensorFlow before
2.21 is a segmentation fault, and loading it with RTLD_DEEPBIND does not help; every other TensorFlow import works.
The other order is Paddle's to mend, in its own ``importing.py``.
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
    """Run TensorFlow's own import inside this.

    Raises:
        BackendConflictError: Paddle is imported already, in a version beside which TensorFlow's import crashes.
    """
    for trouble in clashes():
        raise BackendConflictError(
            trouble,
            "import tensorflow before paddle, use Paddle 3.0 or newer, or TensorFlow 2.21 or newer",
        )
    yield


def clashes() -> tuple[str, ...]:
    """Return what is known to go wrong beside the frameworks this process has imported, a sentence each."""
    if "tensorflow" in sys.modules or sys.modules.get("paddle") is None:
        return ()
    paddle, ours = version_of("paddle"), version_of("tensorflow")
    if paddle is None or ours is None or _numbers(paddle) >= (3, 0) or _numbers(ours) >= (2, 21):
        return ()
    return (f"importing TensorFlow {ours} after PaddlePaddle {paddle} ends the process with a segmentation fault",)


def _numbers(version: str) -> tuple[int, ...]:
    """The first two numbers of a version."""
    return tuple(int(part) if part.isdecimal() else 0 for part in version.split(".")[:2])
