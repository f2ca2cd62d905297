"""Patches that make ``"sim"`` without an index mean the current GPU; PyTorch's C++ would use index 0.

C++ asks the device guard, which always answers 0 for a device in Python. devshim's own kernels know the current GPU;
these functions fill in the index before C++ asks. They are installed when a thread first makes a GPU other than the
first its current one, or a backward pass may do so: before that, both mean the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch.jit._builtins import _get_builtin_table
from torch.overrides import has_torch_function
from torch.utils._device import _device_constructors

from devshim_backends._torch.simulation.internals.overrides import Override, as_method
from devshim_backends._torch.simulation.internals.patches import install, install_item
from devshim_backends._torch.simulation.internals.state import CURRENT, NAME, current

_CONSTRUCTORS = (
    *("tensor", "as_tensor", "asarray", "sparse_coo_tensor", "sparse_compressed_tensor"),
    *("sparse_csr_tensor", "sparse_csc_tensor", "sparse_bsr_tensor", "sparse_bsc_tensor"),
)
"""Functions that ask C++ for the device before the dispatcher."""


def _with_index(device: Any) -> Any:
    if device == NAME or (isinstance(device, torch.device) and device.type == NAME and device.index is None):
        return torch.device(NAME, current())
    return device


def _fill_in_index(function: Any, moves: bool) -> Callable[..., Any]:
    """Return a wrapper that fills in a GPU's index in ``device=`` or, for a move, in any argument."""

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if (CURRENT.index or CURRENT.follow is not None) and not has_torch_function(args):
            if moves:
                args = (args[0], *(_with_index(each) for each in args[1:]))
            if "device" in kwargs:
                kwargs["device"] = _with_index(kwargs["device"])
        return function(*args, **kwargs)

    return wrapper


def patch() -> None:
    """Install the patches."""
    _device_constructors()  # caches PyTorch's own functions, by which torch.device(...) as a context recognizes calls
    operators = _get_builtin_table()  # TorchScript's, by the address of a function: built before any is replaced
    for name in _CONSTRUCTORS:
        real = getattr(torch, name)
        new = Override(_fill_in_index(real, moves=False), real)
        install(torch, name, new)
        if id(real) in operators:
            install_item(operators, id(new), operators[id(real)])
    to = _fill_in_index(torch._C.TensorBase.to, moves=True)
    install(torch.Tensor, "to", as_method(to, torch._C.TensorBase.to))
    install(torch.Tensor, "_devshim_to", torch._C.TensorBase.to)  # dynamo traces only C methods that the class has
