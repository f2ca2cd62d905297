"""A step of the tour, and its source lines that the reader sees.

Requirements of this module:

* The lines shown are the lines that ran: they are read from the step's own function, never typed a second time.
* A step that expects a refusal shows it; if the refusal does not come, the step fails.
"""

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass
from textwrap import dedent
from typing import TYPE_CHECKING, Any

from devshim.errors import DevshimError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    Outcome = tuple[object, Callable[[], bool]]
    """The result of a step: the value to show, and a function that checks its condition."""

__all__ = ["Step", "expect_error", "step"]


@dataclass(frozen=True)
class Step:
    """One step of the chapter.

    Attributes:
        title: A few words.
        condition: The condition that must be true, as a clause.
        cards: The number of GPUs that it needs; with fewer, it is left out, and the tour reports that.
        code: The function; its parameters name its arguments (``ARGUMENTS`` of its chapter).
    """

    title: str
    condition: str
    cards: int
    code: Callable[..., Outcome]

    @property
    def name(self) -> str:
        """The function's name, the same in every record of a tour."""
        return self.code.__name__

    @property
    def lesson(self) -> str:
        """The text of the book's chapter for this step: the function's docstring."""
        return inspect.getdoc(self.code) or ""

    @property
    def needs(self) -> tuple[str, ...]:
        """The names of the function's arguments."""
        return tuple(inspect.signature(self.code).parameters)

    @property
    def lines(self) -> list[str]:
        """The source as the reader sees it: without the docstring, the return, and the ``with`` of a refusal."""
        source = dedent(inspect.getsource(self.code))
        function = ast.parse(source).body[0]
        assert isinstance(function, ast.FunctionDef)
        shown: list[ast.stmt] = []
        for statement in function.body[1:-1]:
            shown += statement.body if isinstance(statement, ast.With) else [statement]
        segments = [dedent(ast.get_source_segment(source, each, padded=True) or "") for each in shown]
        return [line for segment in segments for line in segment.splitlines()]


def step(title: str, *, condition: str, cards: int = 0) -> Callable[[Callable[..., Outcome]], Step]:
    """Make a function a `Step`.

    Its body is a docstring (the book's text), the lines that the reader sees, and ``return value, check``.
    """
    return lambda code: Step(title, condition, cards, code)


class expect_error:
    """A ``with`` block that must end in a certain error; it stores the error for the reader.

    Attributes:
        error: The error that was raised, or None.
    """

    def __init__(self, expected: type[DevshimError]) -> None:
        self._expected = expected
        self.error: DevshimError | None = None

    def __enter__(self) -> expect_error:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if isinstance(error, self._expected):
            self.error = error
        return self.error is not None

    def __str__(self) -> str:
        if self.error is None:
            return f"no error was raised, but {self._expected.__name__} was expected"
        return f"{self._expected.__name__}: {self.error.problem}"

    def mentions(self, *words: Any) -> bool:
        """Return True if the refusal came and its message contains all of ``words``."""
        return self.error is not None and all(str(word) in str(self.error) for word in words)
