"""``DistributedDataParallel(find_unused_parameters=True)``: the memory in which it counts the parameters in use.

In each backward pass, C++ requests pinned host memory from PyTorch, and checks that it is pinned. PyTorch would ask the
simulated GPUs for an allocator of it, and only C++ can provide one. Any host memory works like pinned memory for a
simulated GPU. Therefore two operators of the host are replaced once a process makes such a model: ``is_pinned``, and
``empty_strided``, which then records the request and allocates as usual.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from threading import RLock
from typing import Any

import torch

from devshim_backends._torch.simulation.tensors import is_pinned, mark_pinned

_empty = torch.ops.aten.empty.memory_format
_as_strided = torch.ops.aten.as_strided.default._op_dk
_CPU = torch._C.DispatchKey.CPU
_LOCK = RLock()
_LIBRARIES: list[Any] = []


def _empty_strided(
    size: Any, stride: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None
) -> Any:
    """Implement ``aten::empty_strided`` for the host."""
    count = 0 if 0 in size else 1 + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    tensor = _as_strided(_CPU, _empty([count], dtype=dtype, layout=layout, device=device), size, stride)
    if pin_memory:
        mark_pinned(tensor)
    return tensor


def provide_pinned_memory(real: Callable[..., Any]) -> Callable[..., Any]:
    """Return a wrapper of ``DistributedDataParallel._ddp_init_helper`` that replaces the operators if needed."""

    @functools.wraps(real)
    def init(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.find_unused_parameters:
            _replace_operators()
        return real(self, *args, **kwargs)

    return init


def _replace_operators() -> None:
    """Replace the two operators, once in a process."""
    with _LOCK:
        libraries = _LIBRARIES
        if libraries:
            return
        library = torch.library.Library("aten", "IMPL")
        libraries.append(library)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*overrid", UserWarning)
        library.impl("empty_strided", _empty_strided, "CPU", allow_override=True)
        library.impl("is_pinned", is_pinned, "CPU", allow_override=True)


def uninstall() -> None:
    """Restore the operators of PyTorch."""
    while _LIBRARIES:
        _LIBRARIES.pop()._destroy()
