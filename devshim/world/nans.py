"""The maximum and minimum of values with NaN, by an engine that loses NaN, such as gloo.

Such an engine compares ``a < b``, which is False for NaN: whether the result is NaN depends on the order of the ranks.
So if some rank has NaN, all ranks also exchange the places of it, and write NaN there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Reduce = Callable[[Iterable[np.ndarray], Literal["max", "min"]], None]

__all__ = ["has_nan", "reduce_marked"]


def has_nan(values: np.ndarray[Any, Any]) -> bool:
    """Return True if a value is NaN."""
    return bool(np.isnan(values).any())


def reduce_marked(
    reduce: Reduce, values: np.ndarray[Any, Any], parts: Iterable[np.ndarray], op: Literal["max", "min"]
) -> None:
    """Replace a flat array by its maximum or minimum over all ranks, which is NaN where the value of any rank is.

    Args:
        reduce: Reduces flat arrays over all ranks, in their own memory.
        values: The array.
        parts: Its parts, in their order; they may be filled as they are returned.
        op: ``"max"`` or ``"min"``.
    """
    marks = np.zeros(values.size, "int32")  # a dtype in which every engine finds the maximum
    places: list[slice] = []

    def marked() -> Iterator[np.ndarray[Any, Any]]:
        for part in parts:
            first = places[-1].stop if places else 0
            places.append(slice(first, first + part.size))
            marks[places[-1]] = np.isnan(part)
            yield part

    reduce(marked(), op)
    reduce((marks[place] for place in places), "max")
    values[marks != 0] = np.nan
