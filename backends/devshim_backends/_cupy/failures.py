"""The error for a full device, which is both devshim's and CuPy's."""

from __future__ import annotations

from cupy.cuda import memory

from devshim.errors import JoinedError, OutOfMemoryError

__all__ = ["FullDeviceError"]


class _OutOfMemoryText(memory.OutOfMemoryError):  # type: ignore[misc]  # CuPy is Any
    """CuPy's error with a text, without the numbers that CuPy's constructor takes."""

    def __init__(self, text: str) -> None:
        MemoryError.__init__(self, text)


class FullDeviceError(JoinedError, OutOfMemoryError, _OutOfMemoryText):
    """The error for a full device; ``except cupy.cuda.memory.OutOfMemoryError`` also catches it."""
