"""Calls without a counterpart on simulated GPUs; each raises an error that names the line to write instead."""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from devshim.errors import UnsupportedError
from devshim.simulation.patching import Patches

_GRAPHS = "call the function directly; a CUDA graph would only repeat its kernels"
_NCCL = "use torch.nn.parallel.comm, or torch.distributed, instead of torch.cuda.nccl"
_KERNELS = "write it with PyTorch's operators, and use the kernel only where torch.version.cuda is a real one"
_ALLOCATOR = "leave out this line: a simulated GPU's memory is allocated by the host"
_REFUSED = {
    **dict.fromkeys(("CUDAGraph", "graph", "make_graphed_callables", "graph_pool_handle"), _GRAPHS),
    **dict.fromkeys(("jiterator", "_compile_kernel"), _KERNELS),
    **dict.fromkeys(
        (
            *("CUDAPluggableAllocator", "MemPool", "use_mem_pool", "change_current_allocator"),
            *("caching_allocator_alloc", "caching_allocator_delete", "memory_snapshot", "caching_allocator_enable"),
            *("host_memory_stats", "host_memory_stats_as_nested_dict", "reset_peak_host_memory_stats"),
            *("reset_accumulated_host_memory_stats", "_record_memory_history", "_dump_snapshot", "_snapshot"),
        ),
        _ALLOCATOR,
    ),
    **dict.fromkeys(("current_blas_handle", "get_stream_from_external"), _KERNELS),
    **dict.fromkeys(
        ("temperature", "power_draw", "clock_rate"),
        "leave out this line: it reads a sensor of a real card",
    ),
}
"""Name in ``torch.cuda`` -> what to write instead."""
_NCCL_FUNCTIONS = ("all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "unique_id", "init_rank")


class _Refused:
    """A function, or a class, that cannot be called."""

    def __init__(self, name: str, hint: str) -> None:
        self.__name__ = self.__qualname__ = name.rpartition(".")[2]
        self._text = f"simulated GPUs do not support torch.cuda.{name}"
        self._hint = hint

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise UnsupportedError(self._text, self._hint)


def _refused_class(name: str, hint: str) -> type:
    """Return a class without instances, so that ``isinstance`` still works."""

    def create(cls: type, *args: Any, **kwargs: Any) -> NoReturn:
        msg = f"simulated GPUs do not support torch.cuda.{name}"
        raise UnsupportedError(msg, hint)

    return type(name, (), {"__new__": create, "__module__": "torch.cuda"})


def install(patches: Patches) -> None:
    """Install the refusals."""
    for name, hint in _REFUSED.items():
        owners = [each for each in (torch.cuda, torch.cuda.memory) if callable(getattr(each, name, None))]
        for owner in owners:
            is_class = isinstance(getattr(owner, name), type)
            patches.replace(owner, name, _refused_class(name, hint) if is_class else _Refused(name, hint))
    for name in _NCCL_FUNCTIONS:
        if hasattr(torch.cuda.nccl, name):
            patches.replace(torch.cuda.nccl, name, _Refused(f"nccl.{name}", _NCCL))
