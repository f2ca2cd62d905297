"""The checksums of a part of a checkpoint folder: one for each block of rows, so that a rank can check its own."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from devshim.checkpoints.crc import crc32

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["PART", "block_checksums", "checksums", "rows_per_block"]

PART = "devshim.part"
"""The key in a part's metadata under which devshim writes its text."""

_BLOCK = 1 << 22
"""Bytes of a block; a longer row is a block."""


def rows_per_block(shape: Sequence[int], itemsize: int) -> int:
    """Return the rows of a block of a tensor of a shape; a tensor without axes is one row."""
    return max(1, _BLOCK // max(1, math.prod(shape[1:]) * itemsize))


def block_checksums(array: np.ndarray) -> list[int]:
    """Return the CRC-32 of each block of an array that begins with a block."""
    if not array.size:
        return []
    rows = array if array.ndim else array.reshape(1)
    step = rows_per_block(rows.shape, rows.itemsize)
    return [crc32(rows[i : i + step].reshape(-1).view(np.uint8).data) for i in range(0, len(rows), step)]


def checksums(arrays: Mapping[str, np.ndarray]) -> dict[str, list[int]]:
    """Return the checksums of the blocks of each array, by its name."""
    return {name: block_checksums(array) for name, array in arrays.items()}
