"""The output of a rank as lines, even if the program prints binary data, a progress bar, or no line ends."""

from __future__ import annotations

import codecs
import io
import os
import select
import threading
from collections.abc import Iterator

__all__ = ["LONGEST", "lines"]

LONGEST = 8192
"""The maximum number of characters of a line; a longer one is cut."""
_READ = 65536
_WAIT = 500
"""Milliseconds between two looks at whether the output has ended."""


def lines(descriptor: int, ended: threading.Event | None = None) -> Iterator[str]:
    """Yield the lines of a descriptor until its end, without line ends; then close it.

    If a line was overwritten after a carriage return, as by a progress bar, its last text remains. Bytes that
    are not UTF-8 become a replacement character.

    Args:
        descriptor: The end of a pipe.
        ended: Once it is set, what has been written is the end, even if a process still holds the pipe open.
    """
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    left = ""
    with os.fdopen(descriptor, "rb", buffering=0) as stream:
        while data := _read(stream, ended):
            *whole, left = (left + decode(data)).split("\n")
            for line in whole:
                yield from _cut(_visible_text(line)) or [""]
            is_over = left.endswith("\r")  # what follows replaces it
            *long, left = _cut(_visible_text(left)) or [""]
            left += "\r" if is_over else ""
            yield from long
    yield from _cut(_visible_text(left + decode(b"", final=True)))


def _read(stream: io.RawIOBase, ended: threading.Event | None) -> bytes:
    """Return the next bytes, or none at the end."""
    if ended is not None:
        bytes_or_end = select.poll()
        bytes_or_end.register(stream, select.POLLIN)
        while not bytes_or_end.poll(_WAIT):
            if ended.is_set():
                return b""
    return stream.read(_READ) or b""


def _visible_text(line: str) -> str:
    """Return what a terminal shows of a line: the text after the last carriage return that has text after it."""
    return line.rstrip("\r").rpartition("\r")[2]


def _cut(line: str) -> list[str]:
    return [line[at : at + LONGEST] for at in range(0, len(line), LONGEST)]
