"""The output of a rank as lines, whatever the program prints: binary, a progress bar, or no end of a line."""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterator

__all__ = ["LONGEST", "lines"]

LONGEST = 8192
"""How many characters a line has at most; a longer one is cut."""
_READ = 65536


def lines(descriptor: int) -> Iterator[str]:
    """Yield the lines that a descriptor has until its end, without their ends; then close it.

    Of a line that was written over after a carriage return, as progress bars do, the last text is left. Bytes that
    are not UTF-8 become a replacement character.
    """
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    left = ""
    with os.fdopen(descriptor, "rb", buffering=0) as stream:
        while data := stream.read(_READ):
            *whole, left = (left + decode(data)).split("\n")
            for line in whole:
                yield from _cut(_shown(line)) or [""]
            is_over = left.endswith("\r")  # what follows replaces it
            *long, left = _cut(_shown(left)) or [""]
            left += "\r" if is_over else ""
            yield from long
    yield from _cut(_shown(left + decode(b"", final=True)))


def _shown(line: str) -> str:
    """Return what a terminal would show of a line: the text after the last carriage return that text follows."""
    return line.rstrip("\r").rpartition("\r")[2]


def _cut(line: str) -> list[str]:
    return [line[at : at + LONGEST] for at in range(0, len(line), LONGEST)]
