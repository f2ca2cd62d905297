"""Patches that make ``"sim"`` without an index mean the current GPU; PyTorch's C++ would use index 0.

C++ asks the device guard, which always answers 0 for a device in Python. devshim's own kernels know the current GPU;
these functions fill in the index before C++ asks. They are installed when a thread first makes a GPU other than the
first its current one: before that, both mean the same.
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
    """Return a wrapper that fills in a GPU's index in ``device=`` or, for a move, in any argument."""

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
    """Install the patches."""
    _device_constructors()  # caches PyTorch's own functions, by which torch.device(...) as a context recognises calls
    for name in ("tensor", "as_tensor", "asarray"):
        put(torch, name, _filled_in(getattr(torch, name), moves=False))
    moved = _filled_in(torch._C.TensorBase.to, moves=True)
    put(torch.Tensor, "to", moved)
    # The parameters of lazy modules accept only listed operators, and recognise `to` only by the object itself.
    put(UninitializedTensorMixin, "_allowed_methods", [*UninitializedTensorMixin._allowed_methods, moved])
