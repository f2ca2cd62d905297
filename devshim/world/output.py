"""The output of a rank as lines, even if the program prints binary data, a progress bar, or no line ends."""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterator

__all__ = ["LONGEST", "lines"]

LONGEST = 8192
"""The maximum number of characters of a line; a longer one is cut."""
_READ = 65536


def lines(descriptor: int) -> Iterator[str]:
    """Yield the lines of a descriptor until its end, without line ends; then close it.

    If a line was overwritten after a carriage return, as by a progress bar, its last text remains. Bytes that
    are not UTF-8 become a replacement character.
    """
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    left = ""
    with os.fdopen(descriptor, "rb", buffering=0) as stream:
        while data := stream.read(_READ):
            *whole, left = (left + decode(data)).split("\n")
            for line in whole:
                yield from _cut(_visible_text(line)) or [""]
            is_over = left.endswith("\r")  # what follows replaces it
            *long, left = _cut(_visible_text(left)) or [""]
            left += "\r" if is_over else ""
            yield from long
    yield from _cut(_visible_text(left + decode(b"", final=True)))


def _visible_text(line: str) -> str:
    """Return what a terminal shows of a line: the text after the last carriage return that has text after it."""
    return line.rstrip("\r").rpartition("\r")[2]


def _cut(line: str) -> list[str]:
    return [line[at : at + LONGEST] for at in range(0, len(line), LONGEST)]
