"""Cutting MXNet's arrays up, joining them, and combining them element by element.

The interface of an array (``mx.np`` or ``mx.nd``) is that of what is made of it.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any, Literal

import mxnet as mx
import numpy as np

from devshim_backends._mxnet.creation import MxnetCreation
from devshim_backends._mxnet.native import numpy_shapes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devshim.backend import Tensor

_OPS = {"sum": "add", "mean": "add", "max": "maximum", "min": "minimum"}
_OLD = {"add": "broadcast_add", "maximum": "broadcast_maximum", "minimum": "broadcast_minimum"}
"""What ``mx.nd`` calls them."""


class MxnetSeveral(MxnetCreation):
    """The room of several devices."""

    def narrow(self, x: Tensor, axis: int, start: int, stop: int) -> Tensor:
        with numpy_shapes():
            return x[(slice(None),) * axis + (slice(start, stop),)]

    def concatenate(self, xs: Sequence[Tensor], axis: int) -> Tensor:
        with numpy_shapes():
            if len(xs) == 1:
                return self.copy_to(xs[0], self.device_of(xs[0]))
            if isinstance(xs[0], mx.np.ndarray):
                return mx.np.concatenate(list(xs), axis=axis)
            return mx.nd.concat(*xs, dim=axis)

    def combine(self, xs: Sequence[Tensor], op: Literal["sum", "mean", "max", "min"]) -> Tensor:
        name = _OPS[op]
        with numpy_shapes(), mx.autograd.pause():
            new = isinstance(xs[0], mx.np.ndarray)
            step: Any = getattr(mx.np, name) if new else getattr(mx.nd, _OLD[name])
            made = reduce(step, xs[1:], self.snapshot(xs[0]))
            return made / len(xs) if op == "mean" else made

    def snapshot(self, x: Tensor) -> Tensor:
        with mx.autograd.pause():
            return self.copy_to(x.detach(), self.device_of(x))

    def stack(self, xs: Sequence[Tensor]) -> Tensor:
        names = {self.dtype_name(x) for x in xs}
        dtype = np.result_type(*("float32" if name == "bfloat16" else name for name in names)).name
        with mx.autograd.pause():
            return self.concatenate([self.cast(x.reshape((1,)), dtype) for x in xs], 0)

    def assign(self, x: Tensor, value: Tensor) -> None:
        with numpy_shapes(), mx.autograd.pause():
            value.copyto(x)
