"""Minimum and maximum over several axes, with the right gradient.

With 5 or 6 dimensions, Paddle (3.3.1) computes the gradient of ``max``, ``min``, ``amax`` and ``amin`` over more than
one axis from memory that was never written. A max pool by reshape, ``max(x, axis=(2, 4))``, is an example.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import paddle

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["join_axes"]


def join_axes(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``max`` or ``min`` that joins several axes of a tensor like that into one."""

    def reduce(x: Any, axis: list[int], keepdim: bool) -> Any:
        if len(axis) < 2 or len(x.shape) < 5:
            return fn(x, axis=axis, keepdim=keepdim)
        others = [i for i in range(len(x.shape)) if i not in axis]
        joined = paddle.reshape(paddle.transpose(x, [*others, *axis]), [*(x.shape[i] for i in others), -1])
        found = fn(joined, axis=-1)
        return paddle.unsqueeze(found, sorted(axis)) if keepdim else found

    return reduce
