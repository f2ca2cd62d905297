"""The devshim calls that ran: where each is in its cell, what it did, and on which devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devshim.tutorial.record import Call

__all__ = ["Ran", "Seen", "recorded_calls", "to_characters"]


@dataclass(frozen=True)
class Ran:
    """One devshim call that was seen while a cell ran.

    Attributes:
        call: The name of its native line, such as ``"place"``, ``"place_model"`` or ``"uniform"``.
        line: The first line of the call in the cell, from 1.
        column: Its first column, in characters from 0; None if only the line is known (Python 3.10).
        end: The last line, and the column after the call; None if only the line is known.
        device: The target, such as ``"gpu:1"``, or None.
        is_tree: True if the call moved a tensor inside a tree.
    """

    call: str
    line: int
    column: int | None = None
    end: tuple[int, int] | None = None
    device: str | None = None
    is_tree: bool = False


class Seen:
    """The calls of one cell, by their place.

    Args:
        calls: The calls, in the order in which they ran.
        raised: True if the cell raised an error, maybe in a call that was not seen for this reason.
    """

    def __init__(self, calls: list[Ran], raised: bool = False) -> None:
        self._calls = calls
        self.raised = raised

    def at(self, line: int, column: int, end: tuple[int, int]) -> list[Ran]:
        """Return what the call at a place did, each time that it ran."""
        exact = [c for c in self._calls if (c.line, c.column, c.end) == (line, column, end)]
        return exact or [c for c in self._calls if c.column is None and c.line == line]


def recorded_calls(source: str, calls: Sequence[Call]) -> list[Ran]:
    """Return the calls of a recorded cell that have a place in its source."""
    return [_to_ran(source.split("\n"), each) for each in calls if each.span and each.span[0] <= source.count("\n") + 1]


def _to_ran(lines: list[str], call: Call) -> Ran:
    span = call.span or (1,)
    is_tree = "[" in call.names.get("x", "")
    if len(span) < 4:
        return Ran(call.call, span[0], device=call.device, is_tree=is_tree)
    line, last, column, end = span
    return Ran(
        call.call,
        line,
        to_characters(lines[line - 1], column),
        (last, to_characters(lines[min(last, len(lines)) - 1], end)),
        call.device,
        is_tree,
    )


def to_characters(line: str, count: int) -> int:
    """Return how many characters the first bytes of a line are."""
    return len(line.encode()[:count].decode(errors="ignore"))
