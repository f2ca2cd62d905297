"""Finding out if elements of a strided tensor share memory, so that writing one of them changes another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["overlaps"]


def overlaps(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return True if two elements of a tensor have the same address.

    Args:
        shape: The length of each axis.
        strides: The distance between two neighbours on each axis, in elements or in multiples of the element's size.
    """
    axes = sorted((abs(step), size) for size, step in zip(shape, strides, strict=True) if size != 1)
    if any(size == 0 for _, size in axes):
        return False
    end = 0  # the distance from the first to the last element, on the axes so far
    for step, size in axes:
        if step <= end:
            break
        end += step * (size - 1)
    else:
        return False
    if axes[0][0] == 0:
        return True
    addresses = np.zeros(1, dtype=np.int64)  # nested axes, such as those of sliding windows
    for step, size in axes:
        addresses = np.add.outer(addresses, step * np.arange(size)).ravel()
    return len(np.unique(addresses)) < len(addresses)
