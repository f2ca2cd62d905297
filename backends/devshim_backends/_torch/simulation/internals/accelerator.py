"""Patches of the C++ functions behind `torch.accelerator`, which support only index 0 of a device made in Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from devshim_backends._torch.simulation.internals import module
from devshim_backends._torch.simulation.internals.state import (
    CURRENT,
    NAME,
    TYPES,
    all_hidden,
    current,
    index_of,
    make_current,
    require_simulated,
    shown_count,
)
from devshim_backends._torch.simulation.internals.streams import current_stream


def _current_index() -> int:
    """Return the index of the current GPU; raise if all GPUs are hidden."""
    return index_of() if all_hidden() else current()


def _maybe_exchange(index: int) -> int:
    """Make a GPU current again when a block ends, if it still exists."""
    previous = current()
    CURRENT.index = max(index, 0)
    return previous


def _set_current(index: int) -> None:
    make_current(index)


def _stats(index: int) -> dict[str, Any]:
    """Return the statistics in the nested form that `torch.accelerator.memory_stats` flattens."""
    return dict(module.memory_stats(index))


def _capability(index: int) -> dict[str, Any]:
    require_simulated(index)
    from devshim_backends._torch.simulation.memory import SIMULATED

    names = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")
    return {
        "supported_dtypes": {
            getattr(torch, name) for name in (*names, "complex64", "complex128") if name not in SIMULATED.dtypes_lacking
        }
    }


HOOKS: Mapping[str, Callable[..., Any]] = {
    "_accelerator_getDeviceIndex": _current_index,
    "_accelerator_setDeviceIndex": _set_current,
    "_accelerator_exchangeDevice": make_current,
    "_accelerator_maybeExchangeDevice": _maybe_exchange,
    "_accelerator_getStream": current_stream,
    "_accelerator_setStream": module.set_stream,
    "_accelerator_synchronizeDevice": module.synchronize,
    "_accelerator_getDeviceCapability": _capability,
    "_accelerator_isAllocatorInitialized": lambda: shown_count() > 0,
    "_accelerator_emptyCache": module.empty_cache,
    "_accelerator_emptyHostCache": module.empty_cache,
    "_accelerator_getDeviceStats": _stats,
    "_accelerator_resetAccumulatedStats": module.reset_accumulated_memory_stats,
    "_accelerator_resetPeakStats": module.reset_peak_memory_stats,
    "_accelerator_getMemoryInfo": module.mem_get_info,
}
"""Function of ``torch._C`` -> its replacement while GPUs are simulated."""


def patch_permanently(real_accelerator: Any) -> None:
    """Make PyTorch report its accelerator correctly: ``sim`` while GPUs are simulated, otherwise the real one.

    C++ reports ``sim`` for the rest of the process, so a program that asks for an accelerator would continue to use it.

    Args:
        real_accelerator: The real accelerator, or None.
    """

    def name() -> Any:
        return torch.device("cuda") if "cuda" in TYPES else torch.device(NAME) if shown_count() else None

    torch._C._accelerator_getAccelerator = lambda: name() or real_accelerator
    torch._C._get_accelerator = lambda: name() or real_accelerator or torch.device("cpu")
