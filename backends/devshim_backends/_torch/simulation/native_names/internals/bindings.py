"""The C functions under ``torch.cuda``, which a build of PyTorch without CUDA lacks, for simulated GPUs.

The functions of ``torch.cuda`` themselves are PyTorch's. They therefore read their arguments as on a machine with
cards, and a program finds the same functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from devshim.simulation.driver_numbers import driver_number, uuid
from devshim.simulation.properties import CAPABILITY, MULTIPROCESSORS
from devshim_backends._torch.simulation.internals import accelerator, module
from devshim_backends._torch.simulation.internals.state import (
    SIMULATION,
    current,
    index_of,
    make_current,
    missing_gpu_error,
    shown_count,
)
from devshim_backends._torch.simulation.memory import SIMULATED
from devshim_backends._torch.simulation.native_names.internals import forking, sync_debug

_KINDS = (
    *("allocated_bytes", "active_bytes", "reserved_bytes", "requested_bytes", "inactive_split_bytes"),
    *("allocation", "active", "segment", "inactive_split"),
)
_COUNTS = ("num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free")


class Properties:
    """The result of `torch.cuda.get_device_properties`."""

    name = "Simulated GPU"
    major, minor = CAPABILITY
    multi_processor_count = MULTIPROCESSORS
    is_integrated = is_multi_gpu_board = 0
    max_threads_per_multi_processor = 2048
    max_threads_per_block = 1024
    warp_size = 32
    regs_per_multiprocessor = 65536
    shared_memory_per_block = 49152
    shared_memory_per_block_optin = 166912
    shared_memory_per_multiprocessor = 167936
    L2_cache_size = 0
    gcnArchName = "Simulated GPU"  # PyTorch's name
    clock_rate = 1410000  # in kHz
    memory_clock_rate = 1215000
    memory_bus_width = 5120
    pci_domain_id = pci_device_id = 0

    def __init__(self, index: int) -> None:
        self.total_memory = module.get_device_properties(index).total_memory
        self.pci_bus_id = driver_number(index)
        self.uuid = UUID(uuid(self.pci_bus_id).removeprefix("GPU-"))

    def __repr__(self) -> str:
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory >> 20}MB, multi_processor_count={self.multi_processor_count}, "
            f"uuid={self.uuid}, pci_bus_id={self.pci_bus_id}, pci_device_id={self.pci_device_id}, "
            f"pci_domain_id={self.pci_domain_id}, L2_cache_size={self.L2_cache_size >> 20}MB)"
        )


def _require_known(index: int | None) -> int:
    """Return the index of a GPU that exists; PyTorch's allocator has a different error for other indices.

    Without GPUs, PyTorch's own functions pass None for the current one.
    """
    if index is not None and 0 <= index < SIMULATION.count:
        return index
    raise missing_gpu_error(index or 0, f"Invalid device argument {index}: did you call init?")


def _reset_peak(index: int | None) -> None:
    module.reset_peak_memory_stats(_require_known(index))


def _memory_stats(index: int | None) -> dict[str, Any]:
    """Return the statistics of a GPU in the nested form that `torch.cuda.memory_stats` flattens."""
    gpu = _require_known(index)
    known = module.memory_stats(gpu)
    stats: dict[str, Any] = {}
    for kind in _KINDS:
        nothing = dict.fromkeys(("current", "peak", "allocated", "freed"), 0)
        stats[kind] = {pool: dict(nothing) for pool in ("all", "large_pool", "small_pool")}
        source = "allocated_bytes" if kind == "requested_bytes" else kind
        for figure in ("current", "peak"):
            stats[kind]["all"][figure] = known.get(f"{source}.all.{figure}", 0)
    for kind in ("oversize_allocations", "oversize_segments"):
        stats[kind] = dict.fromkeys(("current", "peak", "allocated", "freed"), 0)
    return {**stats, **dict.fromkeys(_COUNTS, 0), "num_ooms": SIMULATED[gpu].refusals, "max_split_size": -1}


def _set_memory_fraction(fraction: float, index: int) -> None:
    """Limit a GPU until the next `ds.simulate`; its total memory stays the same."""
    total = module.get_device_properties(index).total_memory
    SIMULATED[index].limit = SIMULATION.limit if fraction == 1 else int(total * fraction)


def _memory_fraction(index: int) -> float:
    limit = SIMULATED[index_of(index)].limit
    return 1.0 if limit is None else limit / module.get_device_properties(index).total_memory


def _peer_access(index: int, other: int) -> bool:
    return index_of(index) != index_of(other)


def _device_count() -> int:
    """Return the number of GPUs; `torch.cuda.is_available` calls this, and so uses CUDA."""
    forking.note_use()
    return shown_count()


def _set_device(index: int) -> None:
    forking.note_start()
    make_current(index)


def _exchange_device(index: int) -> int:
    if index < 0:
        return -1
    forking.note_start()
    return make_current(index)


def _maybe_exchange_device(index: int) -> int:
    if index < 0:
        return -1
    forking.note_start()
    return accelerator._maybe_exchange(index)


def get_device_properties(index: int) -> Properties:
    """Return a GPU's properties."""
    return Properties(index)


Properties.__name__ = Properties.__qualname__ = "_CudaDeviceProperties"  # PyTorch's name, which programs may print


class _AllocatorState:
    """A class that the compiler's code generator imports; nothing creates one."""


def _nothing(*args: Any) -> None:
    """Do nothing."""


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "_cuda_init": _nothing,
    "_cuda_isInBadFork": module._is_in_bad_fork,
    "_cuda_getDeviceCount": _device_count,
    "_cuda_getDevice": current,
    "_cuda_setDevice": _set_device,
    "_cuda_exchangeDevice": _exchange_device,
    "_cuda_maybeExchangeDevice": _maybe_exchange_device,
    "_cuda_hasPrimaryContext": lambda index: True,
    "_cuda_synchronize": module.synchronize,
    "_cuda_ipc_collect": _nothing,
    "_cuda_sleep": _nothing,
    "_cuda_canDeviceAccessPeer": _peer_access,
    "_cuda_getArchFlags": lambda: f"sm_{CAPABILITY[0]}{CAPABILITY[1]}",
    "_cuda_isCurrentStreamCapturing": lambda: False,
    "_cuda_emptyCache": _nothing,
    "_cuda_memoryStats": _memory_stats,
    "_cuda_resetAccumulatedMemoryStats": _reset_peak,
    "_cuda_resetPeakMemoryStats": _reset_peak,
    "_cuda_setMemoryFraction": _set_memory_fraction,
    "_cuda_getMemoryFraction": _memory_fraction,
    "_cuda_getAllocatorBackend": lambda: "native",
    "_cuda_set_sync_debug_mode": sync_debug.set_mode,
    "_cuda_get_sync_debug_mode": sync_debug.get_mode,
    "_cuda_clearCublasWorkspaces": _nothing,
    "_cuda_CUDAAllocator_AllocatorState": _AllocatorState,
    "_set_cached_tensors_enabled": _nothing,
    "_cuda_lock_mutex": _nothing,
    "_cuda_unlock_mutex": _nothing,
}
"""Function of ``torch._C`` -> its counterpart for simulated GPUs."""
