"""Operators of PyTorch for which the host waits for a GPU, because it needs one of the GPU's values."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["INDEXING", "reason_to_wait"]

INDEXING = frozenset({"index", "index_put", "index_put_", "_index_put_impl_"})
"""The operators under ``x[i]`` and ``x[i] = y`` with tensors as indices."""
_WAITING = {
    **dict.fromkeys(("nonzero", "masked_select", "bincount"), "{}()"),
    **dict.fromkeys(("_unique", "_unique2", "unique_dim"), "unique()"),
    **dict.fromkeys(("unique_consecutive", "unique_dim_consecutive"), "unique_consecutive()"),
    "equal": "equal()",
    "_linalg_check_errors": "an error check of torch.linalg",
}
"""Operator -> the value for which the GPU waits: one that the result's shape depends on, or the result itself."""


def reason_to_wait(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Return a description of the value that a GPU waits for in an operator; None if it does not wait."""
    if name in INDEXING:
        masked = any(_is_mask_on_gpu(x) for x in args[1])
        return "a selection by a mask" if masked and (name == "index" or not _is_number(args[2])) else None
    if name == "repeat_interleave":
        return None if kwargs.get("output_size") is not None else "repeat_interleave()"
    reason = _WAITING.get(name)
    return None if reason is None else reason.format(name)


def _is_mask_on_gpu(x: Any) -> bool:
    """Return True for a mask whose true elements must be counted on a GPU."""
    return x is not None and x.dtype in (torch.bool, torch.uint8) and x.get_device() >= 0


def _is_number(value: Any) -> bool:
    """Return True for a number on the host: writing it by a mask needs no count."""
    return bool(value.numel() == 1 and value.get_device() < 0)
