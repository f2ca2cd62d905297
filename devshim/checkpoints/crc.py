"""The CRC-32 of the values in a checkpoint: by ISA-L where it is installed, and otherwise by zlib, to the same result.

The two differ only in speed: ISA-L uses the processor's instructions for such sums, and takes a quarter of the time.
"""

from __future__ import annotations

try:
    from isal.isal_zlib import crc32
except ImportError:  # isal has no build for this processor or version of Python
    from zlib import crc32

__all__ = ["CHUNK", "Sum", "crc32"]

CHUNK = 1 << 18
"""Bytes: few enough to stay in the processor's cache between reading or copying them and their sum."""


class Sum:
    """The CRC-32 of bytes that come piece by piece.

    Attributes:
        value: The CRC-32 of the bytes so far.
    """

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: int = 0

    def add(self, data: memoryview) -> None:
        """Add the next bytes."""
        self.value = crc32(data, self.value)
