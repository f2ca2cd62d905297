"""`DistributedDataParallel` that counts the parameters in use: the host memory for the count.

It counts with ``find_unused_parameters=True``, and in the first backward pass of a static graph. For that, C++ requests
pinned host memory from PyTorch, and checks that it is pinned. PyTorch would ask the simulated GPUs for an allocator of
it, and only C++ can provide one. Any host memory works like pinned memory for a simulated GPU. Therefore two operators
of the host are replaced once a process makes such a model: ``is_pinned``, and ``empty_strided``, which then records the
request and allocates as usual.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from devshim.simulation.patching import Patches
from devshim_backends._torch.simulation.native_names.internals.replaced_operators import ReplacedOperators
from devshim_backends._torch.simulation.tensors import is_pinned, mark_pinned

_empty = torch.ops.aten.empty.memory_format
_as_strided = torch.ops.aten.as_strided.default._op_dk
_CPU = torch._C.DispatchKey.CPU


def _empty_strided(
    size: Any, stride: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None
) -> Any:
    """Implement ``aten::empty_strided`` for the host."""
    count = 0 if 0 in size else 1 + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    tensor = _as_strided(_CPU, _empty([count], dtype=dtype, layout=layout, device=device), size, stride)
    if pin_memory:
        mark_pinned(tensor)
    return tensor


_KERNELS: dict[str, Callable[..., Any]] = {"empty_strided": _empty_strided, "is_pinned": is_pinned}
PINNED_MEMORY = ReplacedOperators("aten", "CPU")


def install(patches: Patches) -> None:
    """Install the replacements of the methods with which a model starts to count."""
    model = torch.nn.parallel.DistributedDataParallel
    patches.replace(model, "_ddp_init_helper", _init_of(model._ddp_init_helper))
    patches.replace(model, "_set_static_graph", _set_static_graph_of(model._set_static_graph))


def _init_of(real: Callable[..., Any]) -> Callable[..., Any]:
    """Return a wrapper of ``DistributedDataParallel._ddp_init_helper`` that replaces the operators if needed."""

    @functools.wraps(real)
    def init(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.find_unused_parameters:
            PINNED_MEMORY.install(lambda: _KERNELS)
        return real(self, *args, **kwargs)

    return init


def _set_static_graph_of(real: Callable[..., Any]) -> Callable[..., Any]:
    """Return a wrapper of ``DistributedDataParallel._set_static_graph`` that replaces the operators.

    The constructor calls it with ``static_graph=True``, and a program may call it later.
    """

    @functools.wraps(real)
    def set_static_graph(self: Any) -> Any:
        PINNED_MEMORY.install(lambda: _KERNELS)
        return real(self)

    return set_static_graph
