"""What only a build for CUDA has: its counters of memory, its generators, and functions that a build for CPUs refuses.

Paddle's own refusals say that Paddle must be installed again. Here a function answers as on a real GPU, or is refused
with the line to change.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import paddle

from devshim.errors import UnsupportedError
from devshim.transfers.observers import site
from devshim_backends._paddle.capabilities import NOT_SIMULATED
from devshim_backends._paddle.devices import core
from devshim_backends._paddle.simulation.internals import composed_operators, missing_kernels
from devshim_backends._paddle.simulation.memory import SIMULATED, PaddleSimulatedDevice
from devshim_backends._paddle.simulation.native_names import names, runtime

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["attributes"]


# ---------------------------------------------------------------------- memory
def _gpu(device_id: int) -> PaddleSimulatedDevice:
    gpu = SIMULATED[device_id]
    assert isinstance(gpu, PaddleSimulatedDevice)
    return gpu


def _current_value(stat_type: str, device_id: int) -> int:
    """Return the used bytes; a simulated GPU reserves no more."""
    return _gpu(device_id).cuda_bytes()[0]


def _peak_value(stat_type: str, device_id: int) -> int:
    return _gpu(device_id).cuda_bytes()[1]


def _reset_peak_value(stat_type: str, device_id: int) -> None:
    _gpu(device_id).reset_cuda_peak()


def _vmm_compact(device: Any = None) -> int:
    """Return 0, the bytes that moved, as with the default allocator, which has no virtual memory."""
    names.index_of(device)
    return 0


def _no_blocks(cls: Any, device_id: Any = None) -> list[Any]:
    """Return the blocks of the allocator for virtual memory, which is not the default one."""
    names.index_of(device_id)
    return []


def _no_sizes(cls: Any, device_id: Any = None) -> tuple[int, int]:
    names.index_of(device_id)
    return 0, 0


def _memory() -> Iterator[tuple[Any, str, Any]]:
    yield core, "device_memory_stat_current_value", _current_value
    yield core, "device_memory_stat_peak_value", _peak_value
    if hasattr(core, "device_memory_stat_reset_peak_value"):
        yield core, "device_memory_stat_reset_peak_value", _reset_peak_value
    cuda = paddle.device.cuda
    if hasattr(cuda, "vmm_compact"):  # 3.3
        tool = import_module("paddle.device.cuda.memory_analyzer").MemoryAnalysisTool
        yield cuda, "vmm_compact", _vmm_compact
        yield tool, "vmm_max_free_size", classmethod(_no_sizes)
        yield tool, "vmm_free_block_info", classmethod(_no_blocks)
        yield tool, "vmm_all_block_info", classmethod(_no_blocks)


# ---------------------------------------------------------------------- streams, events and generators
def _create_stream(device_id: Any = None, priority: int = 2, **ignored: Any) -> runtime.Stream:
    return runtime.Stream(device_id, priority)


def _create_event(enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> runtime.Event:
    return runtime.Event(enable_timing, blocking, interprocess)


def _ipc_collect() -> None:
    """Do nothing: a simulated GPU shares no memory with other processes."""


def _generator(device_id: int) -> Any:
    """Return the generator of the CPU, from which simulated GPUs draw."""
    names.index_of(device_id)
    return core.default_cpu_generator()


def _ignore(*args: Any) -> None:
    """Do nothing: a profiler of real GPUs does not see simulated ones."""


def _profiler() -> Iterator[tuple[Any, str, Any]]:
    """Yield the functions behind ``paddle.cuda.nvtx`` and ``paddle.utils.profiler``, in both modules that have them."""
    for owner in (core, paddle.base.libpaddle):
        for name in ("nvtx_push", "nvtx_pop", "start", "stop", "enable_record_event"):
            if not hasattr(owner, f"nvprof_{name}"):
                yield owner, f"nvprof_{name}", _ignore


def _runtime() -> Iterator[tuple[Any, str, Any]]:
    cuda = paddle.device.cuda
    for owner, name, new in (
        (cuda, "create_stream", _create_stream),
        (cuda, "create_event", _create_event),
        *((each, "ipc_collect", _ipc_collect) for each in (paddle.device, getattr(paddle, "cuda", None))),
        (core, "default_cuda_generator", _generator),
        (core, "_device_synchronize", runtime.synchronize),
    ):
        if hasattr(owner, name):
            yield owner, name, new


# ---------------------------------------------------------------------- what is refused
_REFUSED = (
    *("paddle.device.cuda.allocate_record_table", "paddle.device.cuda.allocate_record_plot"),
    *("paddle.device.cuda.graphs.CUDAGraph", "paddle.device.cuda.graphs.wrap_cuda_graph"),
    *("paddle.device.get_stream_from_external", "paddle.cuda.get_stream_from_external"),
    *("paddle.cuda.cudart", "paddle.cuda.check_error"),
)


def _refuse(name: str) -> Any:
    """Return a function that raises the error for a call that simulated GPUs cannot run."""
    reason = next(text for key, text in NOT_SIMULATED.items() if name.startswith(key))

    def refuse(*args: Any, **kwargs: Any) -> Any:
        why, _, instead = reason.partition(": ")
        msg = f"simulated GPUs do not support {name}, which {site()} calls: {why}"
        raise UnsupportedError(msg, instead)

    return refuse


_OPERATORS = ("fused_attention", "fused_feedforward", "fused_gate_attention", "dropout_nd")
"""Operators of the old kind that only builds for CUDA have."""


def _refuse_operator(name: str) -> Any:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise missing_kernels.error_for(name)

    return refuse


def _operators() -> Iterator[tuple[Any, str, Any]]:
    owner = paddle._legacy_C_ops
    for name, new in {**{each: _refuse_operator(each) for each in _OPERATORS}, **composed_operators.LEGACY}.items():
        if not hasattr(owner, name):
            yield owner, name, new


def attributes() -> Iterator[tuple[Any, str, Any]]:
    """Yield what to replace: the owner, the attribute, the new value."""
    yield from _memory()
    yield from _runtime()
    yield from _profiler()
    yield from _operators()
    for name in _REFUSED:
        path, _, attribute = name.rpartition(".")
        owner: Any = paddle
        for part in path.split(".")[1:]:
            owner = getattr(owner, part, None)
        if hasattr(owner, attribute):
            yield owner, attribute, _refuse(name)
