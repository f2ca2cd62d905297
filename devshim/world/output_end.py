"""The end of a rank's output, in which the last tracebacks stay complete whatever is printed after them."""

from __future__ import annotations

import re
from collections import deque

__all__ = ["TRACEBACK", "OutputEnd"]

TRACEBACK = "Traceback (most recent call last)"
_HEAD = re.compile(
    rf"(?! *\|).*{re.escape(TRACEBACK)}|Fatal Python error|Current thread |Stack \(most recent call first"
)
"""The first line of a traceback that is not part of an exception group, or of what faulthandler prints of a thread."""
_CHARACTERS = 6000
"""The number of characters of the end."""
_OF_TRACEBACK, _OF_ERROR = 16000, 1000
"""The maximum number of characters of a traceback, of which the innermost lines stay, and of the line of its error."""
_KEPT = 2
"""The number of tracebacks that stay: the last one may only wrap the one before it."""


class OutputEnd:
    """The end of an output, and its last tracebacks.

    An error may have a message of megabytes, and a program may print much while it ends. The error and the program's
    line are then not in the last characters of the output, but they explain why the program has ended.
    """

    def __init__(self) -> None:
        self._text = ""
        self._written = 0
        self._tracebacks = deque[_Traceback](maxlen=_KEPT)

    def add(self, line: str) -> None:
        """Add a line, without its end."""
        if _HEAD.match(line):
            self._tracebacks.append(_Traceback(self._written))
        self._text = f"{self._text}{line}\n"[-_CHARACTERS:]
        self._written += len(line) + 1
        if self._tracebacks:
            self._tracebacks[-1].add(line, self._written)

    def __str__(self) -> str:
        begin = kept = self._written - len(self._text)
        parts = []
        for each in self._tracebacks:
            if each.start < begin:
                parts.append(str(each))
                kept = max(kept, each.end)
                parts.append("" if each.end >= begin else "[...]\n")
        return "".join(parts) + self._text[kept - begin :]


class _Traceback:
    """A traceback: its first line, the indented lines after it, and the line of its error.

    Attributes:
        start: The position of its first character in the output.
        end: The position after its last character.
    """

    def __init__(self, start: int) -> None:
        self.start: int = start
        self.end: int = start
        self._head, self._error, self._is_over = "", "", False
        self._lines = deque[str]()
        self._length = 0

    def add(self, line: str, end: int) -> None:
        """Add the next line of the output, if it belongs to the traceback."""
        if self._is_over:
            return
        self.end = end
        if not self._head:
            self._head = f"{line}\n"
        elif line[:1].isspace():
            self._lines.append(f"{line}\n")
            self._length += len(line)
            while self._length > _OF_TRACEBACK:
                self._length -= len(self._lines.popleft()) - 1
        else:
            shown = line if len(line) <= _OF_ERROR else f"{line[:_OF_ERROR]}..."
            self._error, self._is_over = f"{shown}\n", True

    def __str__(self) -> str:
        return f"{self._head}{''.join(self._lines)}{self._error}"
