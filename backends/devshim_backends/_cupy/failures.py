"""The error of a full device: devshim's and CuPy's in one."""

from __future__ import annotations

from cupy.cuda import memory

from devshim.errors import OutOfMemoryError, joined

__all__ = ["FullDeviceError"]


class _Told(memory.OutOfMemoryError):  # type: ignore[misc]  # CuPy is Any
    """CuPy's error with a text in place of the numbers it is made of."""

    def __init__(self, text: str) -> None:
        MemoryError.__init__(self, text)


@joined
class FullDeviceError(OutOfMemoryError, _Told):
    """A device is full; ``except cupy.cuda.memory.OutOfMemoryError`` catches it, too."""
