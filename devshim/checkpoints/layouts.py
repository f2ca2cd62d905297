"""Convert a weight from one framework's layout to another's, through a canonical layout (`contract.models.Weight`).

A leaf may contain several weights (MXNet's fused parameter of a recurrent layer), and a weight may be the sum of
others (the single bias of an LSTM in Keras, where other frameworks have two).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from devshim.contract.models import Weight

__all__ = ["Term", "assemble", "canonical_shape", "require_sound"]


@dataclass(frozen=True)
class Term:
    """The contribution of a tensor to a leaf.

    Attributes:
        theirs: Its position in the tensor, and its layout there.
        mine: Its position in the leaf, and its layout there.
        counts: False if it contributes zeros.
    """

    theirs: Weight
    mine: Weight
    counts: bool = True


def canonical_shape(weight: Weight, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the canonical shape of a weight whose leaf has a shape."""
    if weight.folded is not None:
        return tuple(math.prod(sizes) for sizes in weight.folded)
    if weight.axes is None:
        return tuple(shape)
    return tuple(shape[axis] for axis in np.argsort(weight.axes))


def assemble(terms: Sequence[tuple[Term, Callable[[], np.ndarray]]], shape: tuple[int, ...]) -> np.ndarray:
    """Return the values of a leaf of a shape, assembled from the contribution of each tensor."""
    if len(terms) == 1 and terms[0][0].counts and terms[0][0].mine.part is None:
        term, read = terms[0]
        return _from_canonical(term.mine, _to_canonical(term.theirs, read())).reshape(shape)
    values_of_leaf: np.ndarray | None = None
    for term, read in terms:
        values = _from_canonical(term.mine, _to_canonical(term.theirs, read()))
        values_of_leaf = np.zeros(shape, values.dtype) if values_of_leaf is None else values_of_leaf
        if term.counts:
            values_of_leaf.reshape(-1)[slice(*(term.mine.part or (None, None)))] += values.reshape(-1)
    assert values_of_leaf is not None
    return values_of_leaf


def _unfold(weight: Weight, shape: Sequence[int]) -> list[int]:
    """Return the canonical sizes, with every axis unfolded."""
    return list(shape) if weight.folded is None else [size for sizes in weight.folded for size in sizes]


def _to_canonical(weight: Weight, stored: np.ndarray) -> np.ndarray:
    shape = canonical_shape(weight, stored.shape)
    sizes = _unfold(weight, shape)
    axes = range(len(sizes)) if weight.axes is None else weight.axes
    values = stored if weight.part is None else stored.reshape(-1)[slice(*weight.part)]
    values = values.reshape([sizes[axis] for axis in axes]).transpose(np.argsort(axes))
    if weight.order is not None:
        values = values[np.argsort(weight.order)]
    return values.reshape(shape)


def _from_canonical(weight: Weight, canonical: np.ndarray) -> np.ndarray:
    values = canonical.reshape(_unfold(weight, canonical.shape))
    if weight.order is not None:
        values = values[list(weight.order)]
    return values if weight.axes is None else values.transpose(weight.axes)


def require_sound(weight: Weight, shape: Sequence[int]) -> None:
    """Raise `ValueError` if a weight, as described in a file, cannot belong to a tensor of a shape."""
    sizes = _unfold(weight, shape)
    start, stop = weight.part or (0, math.prod(shape))
    if weight.axes is not None and sorted(weight.axes) != list(range(len(sizes))):
        msg = "a weight does not have these axes"
        raise ValueError(msg)
    if not 0 <= start <= stop <= math.prod(shape) or math.prod(sizes) != stop - start or min(sizes, default=0) < 0:
        raise ValueError("a weight has another size")
    if weight.part is not None and weight.folded is None:
        msg = "the shape of a part of a tensor is missing"
        raise ValueError(msg)
    if weight.order is not None and (not sizes or sorted(weight.order) != list(range(sizes[0]))):
        msg = "a weight's order of axes is invalid"
        raise ValueError(msg)
