"""``"sim"`` without an index: the current card, where PyTorch's C++ takes card 0.

It asks the device guard, which for a device in Python always says 0.  Where a kernel of ours is asked, it knows better;
these functions fill in the index before they ask.  They are replaced when a thread makes another card than the first
its current one, and not before: until then both mean the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch.nn.parameter import UninitializedTensorMixin
from torch.utils._device import _device_constructors

from devshim_backends._torch.simulation.patches import put
from devshim_backends._torch.simulation.state import CURRENT, NAME, current


def _with_index(given: Any) -> Any:
    if given == NAME or (isinstance(given, torch.device) and given.type == NAME and given.index is None):
        return torch.device(NAME, current())
    return given


def _filled_in(function: Any, moves: bool) -> Callable[..., Any]:
    """A function that gives a card its index, where ``device=`` names one or, of a move, any argument does."""

    @wraps(function)
    def filled_in(*args: Any, **kwargs: Any) -> Any:
        if CURRENT.index:
            if moves:
                args = (args[0], *(_with_index(each) for each in args[1:]))
            if "device" in kwargs:
                kwargs["device"] = _with_index(kwargs["device"])
        return function(*args, **kwargs)

    return filled_in


def patch() -> None:
    """Put them in place."""
    _device_constructors()  # remembers PyTorch's own functions, by which torch.device(...) as a context knows calls
    for name in ("tensor", "as_tensor", "asarray"):
        put(torch, name, _filled_in(getattr(torch, name), moves=False))
    moved = _filled_in(torch._C.TensorBase.to, moves=True)
    put(torch.Tensor, "to", moved)
    # Lazy modules' parameters take no operator that is not on their list, and know this one by its place alone.
    put(UninitializedTensorMixin, "_allowed_methods", [*UninitializedTensorMixin._allowed_methods, moved])
