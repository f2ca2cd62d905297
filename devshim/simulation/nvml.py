"""NVML for simulated GPUs: what ``pynvml`` answers while native names are on.

The package nvidia-ml-py calls C functions of NVIDIA's library. This module replaces the library by an object with
Python functions of the same names. So the functions, constants, structures and errors of ``pynvml`` are its own, and
programs that use them, such as gpustat and GPUtil, find simulated GPUs. What a simulated GPU does not have, such as a
temperature, raises ``NVMLError_NotSupported``, as real GPUs without that sensor do.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from devshim.simulation import runs, usage
from devshim.simulation.late_patches import LatePatches
from devshim.simulation.usage import Gpu, Process

if TYPE_CHECKING:
    from types import ModuleType
    from typing import TypeAlias

    from devshim.simulation.patching import Patches

    CFunction: TypeAlias = Callable[..., int]

__all__ = ["all_gpus", "set_simulated"]

_SUCCESS, _UNINITIALIZED, _INVALID, _UNSUPPORTED, _NOT_FOUND, _TOO_SMALL = 0, 1, 2, 3, 6, 7


def all_gpus() -> list[Gpu]:
    """Return the simulated GPUs with the processes that use them: this one, and the others of its `devshim run`."""
    own = usage.of_this_process()
    run = runs.run_of_this_process()
    others = runs.processes(run, besides=own.pid) if run is not None else ()
    return usage.gpus_of([own, *(each for _, each in others if isinstance(each, Process))])


def set_simulated(wanted: bool) -> None:
    """Let ``pynvml`` answer for simulated GPUs from now on, or let it ask the driver again."""
    if wanted:
        _PATCHES.install()
    else:
        _PATCHES.undo()


def _replace_library(patches: Patches, pynvml: ModuleType) -> None:
    patches.replace(pynvml, "nvmlLib", Library())
    patches.replace(pynvml, "_nvmlGetFunctionPointer_cache", {})
    patches.replace(pynvml, "_nvmlLib_refcount", 0)


_PATCHES = LatePatches("pynvml", "_nvmlGetFunctionPointer_cache", _replace_library)


class Library:
    """Replacement for NVIDIA's library, loaded by `ctypes`: each attribute is a function that returns an error code."""

    is_simulated = True

    def __init__(self) -> None:
        self._started = 0

    def __getattr__(self, name: str) -> CFunction:
        if not name.startswith("nvml"):
            raise AttributeError(name)
        function: CFunction = _FUNCTIONS.get(name.removesuffix("_v2").removesuffix("_v3"), _return_unsupported)

        def call(*args: Any) -> int:  # ctypes allows to set `restype` on a function, and so does this
            if name in ("nvmlInit", "nvmlInit_v2", "nvmlInitWithFlags"):
                self._started += 1
                return _SUCCESS
            if not self._started and name != "nvmlErrorString":
                return _UNINITIALIZED
            if name == "nvmlShutdown":
                self._started -= 1
                return _SUCCESS
            return function(*args)

        return call


def _return_unsupported(*args: Any) -> int:
    return _UNSUPPORTED


def _error_string(code: Any) -> Any:
    return f"NVML error {getattr(code, 'value', code)}".encode()


# ---------------------------------------------------------------------- arguments of C functions
def _target(reference: Any) -> Any:
    """Return the object behind ``ctypes.byref``, or the object itself."""
    return getattr(reference, "_obj", reference)


def _set_text(buffer: Any, size: Any, text: str) -> int:
    if len(text) >= size.value:
        return _TOO_SMALL
    _target(buffer).value = text.encode()
    return _SUCCESS


def _set_numbers(*pairs: tuple[Any, int]) -> int:
    for reference, value in pairs:
        _target(reference).value = value
    return _SUCCESS


def _set_handle(reference: Any, index: int) -> int:
    """Write a handle, which is a pointer to NVIDIA's own data: here the index and one."""
    ctypes.c_void_p.from_buffer(_target(reference)).value = index + 1
    return _SUCCESS


def _of_gpu(function: Callable[..., int]) -> CFunction:
    """Return a C function whose first argument is a handle, from one whose first argument is the GPU."""

    def call(handle: Any, *args: Any) -> int:
        index = (ctypes.cast(handle, ctypes.c_void_p).value or 0) - 1
        found = [each for each in all_gpus() if each.index == index]
        return function(found[0], *args) if found else _INVALID

    return call


# ---------------------------------------------------------------------- the functions
def _handle_by_index(index: Any, reference: Any) -> int:
    return _set_handle(reference, index.value) if index.value < len(all_gpus()) else _INVALID


def _handle_by_uuid(text: Any, reference: Any) -> int:
    wanted = (text.value or b"").decode()
    found = [each.index for each in all_gpus() if usage.uuid(each.index) == wanted]
    return _set_handle(reference, found[0]) if found else _NOT_FOUND


def _memory(gpu: Gpu, reference: Any) -> int:
    memory = _target(reference)
    memory.total, memory.used, memory.free = gpu.total, gpu.used, gpu.free
    if hasattr(memory, "reserved"):
        memory.reserved = 0
    return _SUCCESS


def _utilization(gpu: Gpu, reference: Any) -> int:
    """Write 0%: no kernel runs on a simulated GPU, because the CPU computes."""
    rates = _target(reference)
    rates.gpu = rates.memory = 0
    return _SUCCESS


def _compute_processes(gpu: Gpu, count: Any, entries: Any) -> int:
    capacity, _target(count).value = _target(count).value, len(gpu.processes)
    if entries is None or capacity < len(gpu.processes):
        return _TOO_SMALL if gpu.processes else _SUCCESS
    for entry, (process, nbytes) in zip(entries, gpu.processes, strict=False):
        entry.pid, entry.usedGpuMemory = process.pid, nbytes
        for name in ("gpuInstanceId", "computeInstanceId"):
            if hasattr(entry, name):
                setattr(entry, name, 0xFFFFFFFF)
    return _SUCCESS


def _no_processes(gpu: Gpu, count: Any, entries: Any) -> int:
    return _set_numbers((count, 0))


def _process_name(pid: Any, buffer: Any, size: Any) -> int:
    if pid.value == os.getpid():
        return _set_text(buffer, size, sys.executable)
    found = [each for gpu in all_gpus() for each, _ in gpu.processes if each.pid == pid.value]
    return _set_text(buffer, size, found[0].program.split(" ")[0]) if found else _NOT_FOUND


_FUNCTIONS: dict[str, CFunction] = {
    "nvmlErrorString": _error_string,
    "nvmlSystemGetDriverVersion": lambda buffer, size: _set_text(buffer, size, usage.DRIVER),
    "nvmlSystemGetNVMLVersion": lambda buffer, size: _set_text(buffer, size, f"{usage.CUDA[0]}.{usage.DRIVER}"),
    "nvmlSystemGetCudaDriverVersion": lambda out: _set_numbers((out, usage.CUDA[0] * 1000 + usage.CUDA[1] * 10)),
    "nvmlSystemGetProcessName": _process_name,
    "nvmlDeviceGetCount": lambda out: _set_numbers((out, len(all_gpus()))),
    "nvmlDeviceGetHandleByIndex": _handle_by_index,
    "nvmlDeviceGetHandleByUUID": _handle_by_uuid,
    "nvmlDeviceGetIndex": _of_gpu(lambda gpu, out: _set_numbers((out, gpu.index))),
    "nvmlDeviceGetMinorNumber": _of_gpu(lambda gpu, out: _set_numbers((out, gpu.index))),
    "nvmlDeviceGetName": _of_gpu(lambda gpu, buffer, size: _set_text(buffer, size, usage.NAME)),
    "nvmlDeviceGetUUID": _of_gpu(lambda gpu, buffer, size: _set_text(buffer, size, usage.uuid(gpu.index))),
    "nvmlDeviceGetMemoryInfo": _of_gpu(_memory),
    "nvmlDeviceGetUtilizationRates": _of_gpu(_utilization),
    "nvmlDeviceGetCudaComputeCapability": _of_gpu(
        lambda gpu, major, minor: _set_numbers((major, usage.CAPABILITY[0]), (minor, usage.CAPABILITY[1]))
    ),
    "nvmlDeviceGetComputeMode": _of_gpu(lambda gpu, out: _set_numbers((out, 0))),
    "nvmlDeviceGetComputeRunningProcesses": _of_gpu(_compute_processes),
    "nvmlDeviceGetGraphicsRunningProcesses": _of_gpu(_no_processes),
    "nvmlDeviceGetMPSComputeRunningProcesses": _of_gpu(_no_processes),
}
"""Name of a C function, without its version -> what it does; every other function is not supported."""
