"""Weights of 4 bits in CUDA's layout, and their product with bfloat16, which PyTorch's CPU build has in another layout.

The layout is that of a card, so that packed weights of a checkpoint have the same meaning here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

_ROWS, _COLUMNS = 8, 16
"""The sizes of a tile; 32 threads share it."""
_ZERO = 8
"""The number that stands for 0 before the scale and the offset of its group."""


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise RuntimeError(message)


def _to_threads(numbers: Any, tiles: int) -> Any:
    """Return a matrix by (rows / 8, columns / (16 x tiles), thread, pair of tiles, position in 32 bits).

    A thread has the row t / 4 of a tile, and its columns 2 (t % 4), the next one, and both of the other half. Two tiles
    share 32 bits: the even columns are in the lower 16 bits, and the odd ones in the upper 16 bits.
    """
    rows, columns = numbers.shape
    shape = (rows // _ROWS, _ROWS, columns // (_COLUMNS * tiles), tiles // 2, 2, 2, 4, 2)
    # the axes: row tile, row, group of tiles, pair, tile of the pair, half, column pair, odd column
    return numbers.reshape(shape).permute(0, 2, 1, 6, 3, 7, 4, 5).reshape(shape[0], shape[2], 32, tiles // 2, 8)


def _from_threads(numbers: Any) -> Any:
    """Return the matrix of `_to_threads`."""
    rows, groups, _, pairs, _ = numbers.shape
    split = numbers.reshape(rows, groups, _ROWS, 4, pairs, 2, 2, 2)
    return split.permute(0, 2, 1, 4, 6, 7, 3, 5).reshape(rows * _ROWS, groups * pairs * 2 * _COLUMNS)


def pack(weight: Any, tiles: int) -> Any:
    """Implement ``aten::_convert_weight_to_int4pack``: each byte has an even column in its upper half."""
    _require(
        weight.dim() == 2 and weight.dtype is torch.uint8, "_convert_weight_to_int4pack: expected a 2-D uint8 tensor"
    )
    _require(tiles in (2, 4, 8), "innerKTiles need to be 2, 4, or 8")
    rows, columns = weight.shape[0], weight.shape[1] * 2
    _require(rows % _ROWS == 0, f"expected a multiple of {_ROWS} rows, but got {rows}")
    _require(columns % (_COLUMNS * tiles) == 0, f"expected a multiple of {_COLUMNS * tiles} columns, but got {columns}")
    numbers = torch.stack([weight >> 4, weight & 15], -1).reshape(rows, columns).to(torch.int64)
    shifts = torch.arange(0, 32, 4, device=weight.device)
    packed = (_to_threads(numbers, tiles) << shifts).sum(-1)
    return torch.where(packed >= 2**31, packed - 2**32, packed).to(torch.int32)


def multiply(x: Any, packed: Any, group: int, scales_and_offsets: Any) -> Any:
    """Implement ``aten::_weight_int4pack_mm``: the product with the transposed weight."""
    _require(x.dim() == 2 and x.dtype is torch.bfloat16, "_weight_int4pack_mm: expected a 2-D bfloat16 tensor")
    _require(packed.dim() == 4 and packed.dtype is torch.int32, "_weight_int4pack_mm: expected a packed weight")
    _require(group in (32, 64, 128, 256), "qGroupSize must be 32, 64, 128 or 256")
    shifts = torch.arange(0, 32, 4, device=packed.device)
    numbers = _from_threads((packed.to(torch.int64).unsqueeze(-1) >> shifts) & 15)
    rows, columns = numbers.shape
    _require(x.shape[1] == columns, f"expected {columns} columns, but got {x.shape[1]}")
    shape = (columns // group, rows, 2)
    _require(scales_and_offsets.shape == shape, f"expected qScaleAndZeros of the shape {list(shape)}")
    scale, offset = scales_and_offsets.float().repeat_interleave(group, 0).permute(2, 1, 0)
    weight = ((numbers - _ZERO) * scale + offset).to(torch.bfloat16)  # a card also rounds each weight
    return (x.float() @ weight.float().t()).to(torch.bfloat16)


INT4_KERNELS: Mapping[str, Callable[..., Any]] = {"_convert_weight_to_int4pack": pack, "_weight_int4pack_mm": multiply}
"""Operator -> its kernel at PrivateUse1."""
