"""Code constructs around a line that reads a GPU's value implicitly: a guard names that line in each of them.

Each function takes the function that reads, the tensor, and a list to which it appends the expected line number.
"""

from __future__ import annotations

import functools
import string
import sys
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["SITES", "line"]

Read = Callable[[Any], object]


def line() -> int:
    """Return the caller's line number."""
    return sys._getframe(1).f_lineno


def plainly(read: Read, x: Any, at: list[int]) -> None:
    at.append(line() + 1)
    read(x)


def over_several_lines(read: Read, x: Any, at: list[int]) -> object:
    at.append(line() + 3)
    return [
        1,
        read(
            x,
        ),
        2,
    ]


def in_a_lambda(read: Read, x: Any, at: list[int]) -> None:
    at.append(line() + 1)
    later: Callable[[], object] = lambda: read(x)  # noqa: E731 - this is what is tried
    later()


def in_a_comprehension(read: Read, x: Any, at: list[int]) -> object:
    at.append(line() + 1)
    return {n: read(each) for n, each in enumerate([x])}


def in_a_generator(read: Read, x: Any, at: list[int]) -> object:
    def reads() -> Iterator[object]:
        at.append(line() + 1)
        yield read(x)

    return next(reads())


def _twice(fn: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(fn)
    def called(*args: Any) -> object:
        return fn(*args), fn(*args)

    return called


def in_a_decorated_function(read: Read, x: Any, at: list[int]) -> None:
    @_twice
    def reading(x: Any) -> object:
        at.append(line() + 1)
        return read(x)

    reading(x)


def in_a_function_that_is_mapped(read: Read, x: Any, at: list[int]) -> object:
    def reading(x: Any) -> object:
        at.append(line() + 1)
        return read(x)

    return list(map(reading, [x]))


def through_python_s_library(read: Read, x: Any, at: list[int]) -> object:
    class Reading:
        def __format__(self, spec: str) -> str:
            at.append(line() + 1)
            read(x)
            return spec

    return string.Formatter().format("{}", Reading())


def by_python_s_library(read: Read, x: Any, at: list[int]) -> object:
    at.append(line() + 1)
    return string.Formatter().format("{0!s}", x)


def in_code_without_a_module(read: Read, x: Any, at: list[int]) -> None:
    at.append(2)
    exec(compile("\nread(x)", __file__, "exec"), {"read": read, "x": x})


SITES: dict[str, Callable[[Read, Any, list[int]], object]] = {
    each.__name__: each
    for each in (
        *(plainly, over_several_lines, in_a_lambda, in_a_comprehension, in_a_generator, in_a_decorated_function),
        *(in_a_function_that_is_mapped, through_python_s_library, by_python_s_library, in_code_without_a_module),
    )
}
