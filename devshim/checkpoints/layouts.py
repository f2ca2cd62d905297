"""From one framework's layout of a weight to another's, by the canonical one between them (`contract.models.Weight`).

A leaf may hold several weights (MXNet's fused parameter of a recurrent layer), and one may be the sum of others (the
one bias of Keras's LSTM, where others have two).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from devshim.contract.models import Weight

__all__ = ["Term", "canonical_shape", "put_together", "require_sound"]


@dataclass(frozen=True)
class Term:
    """What a tensor brings to a leaf.

    Attributes:
        theirs: Where in the tensor it is, and in which layout.
        mine: Where in the leaf it goes, and in which layout.
        counts: False: zeros go there.
    """

    theirs: Weight
    mine: Weight
    counts: bool = True


def canonical_shape(weight: Weight, shape: Sequence[int]) -> tuple[int, ...]:
    """The canonical shape of a weight whose leaf is of a shape."""
    if weight.folded is not None:
        return tuple(math.prod(sizes) for sizes in weight.folded)
    if weight.axes is None:
        return tuple(shape)
    return tuple(shape[axis] for axis in np.argsort(weight.axes))


def put_together(terms: Sequence[tuple[Term, Callable[[], np.ndarray]]], shape: tuple[int, ...]) -> np.ndarray:
    """The values of a leaf of a shape, made of what each tensor brings."""
    if len(terms) == 1 and terms[0][0].counts and terms[0][0].mine.part is None:
        term, read = terms[0]
        return _laid_out(term.mine, _canonical(term.theirs, read())).reshape(shape)
    whole: np.ndarray | None = None
    for term, read in terms:
        values = _laid_out(term.mine, _canonical(term.theirs, read()))
        whole = np.zeros(shape, values.dtype) if whole is None else whole
        if term.counts:
            whole.reshape(-1)[slice(*(term.mine.part or (None, None)))] += values.reshape(-1)
    assert whole is not None
    return whole


def _unfolded(weight: Weight, shape: Sequence[int]) -> list[int]:
    """The canonical sizes, with every axis unfolded."""
    return list(shape) if weight.folded is None else [size for sizes in weight.folded for size in sizes]


def _canonical(weight: Weight, stored: np.ndarray) -> np.ndarray:
    shape = canonical_shape(weight, stored.shape)
    sizes = _unfolded(weight, shape)
    axes = range(len(sizes)) if weight.axes is None else weight.axes
    values = stored if weight.part is None else stored.reshape(-1)[slice(*weight.part)]
    values = values.reshape([sizes[axis] for axis in axes]).transpose(np.argsort(axes))
    if weight.order is not None:
        values = values[np.argsort(weight.order)]
    return values.reshape(shape)


def _laid_out(weight: Weight, canonical: np.ndarray) -> np.ndarray:
    values = canonical.reshape(_unfolded(weight, canonical.shape))
    if weight.order is not None:
        values = values[list(weight.order)]
    return values if weight.axes is None else values.transpose(weight.axes)


def require_sound(weight: Weight, shape: Sequence[int]) -> None:
    """Raise `ValueError` where a weight, as a file has it, cannot be of a tensor of a shape."""
    sizes = _unfolded(weight, shape)
    start, stop = weight.part or (0, math.prod(shape))
    if weight.axes is not None and sorted(weight.axes) != list(range(len(sizes))):
        raise ValueError("a weight has no such axes")
    if not 0 <= start <= stop <= math.prod(shape) or math.prod(sizes) != stop - start or min(sizes, default=0) < 0:
        raise ValueError("a weight is of another size")
    if weight.part is not None and weight.folded is None:
        raise ValueError("a part of a tensor has no shape")
    if weight.order is not None and (not sizes or sorted(weight.order) != list(range(sizes[0]))):
        raise ValueError("a weight has no such order")
