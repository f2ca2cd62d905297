"""The parts of ``torch.cuda`` that are not C functions: its state, its generators, and the libraries that it loads."""

from __future__ import annotations

import functools
from typing import Any

import torch

from devshim.errors import UnsupportedError
from devshim.simulation.driver_numbers import driver_number
from devshim.simulation.patching import Patches
from devshim_backends._torch.simulation.internals import generators, module
from devshim_backends._torch.simulation.internals.state import (
    SIMULATION,
    all_hidden,
    forked_error,
    index_of,
    missing_gpu_error,
    shown_count,
)
from devshim_backends._torch.simulation.native_names.internals import bindings, forking, streams

VERSION = "13.0"
"""The version of CUDA that a program reads: one for which PyTorch has a build."""
_ERRORS = {
    0: "no error",
    1: "invalid argument",
    2: "out of memory",
    3: "initialization error",
    9: "invalid configuration argument",
    35: "CUDA driver version is insufficient for CUDA runtime version",
    98: "invalid device function",
    100: "no CUDA-capable device is detected",
    101: "invalid device ordinal",
    209: "no kernel image is available for execution on the device",
    217: "peer access is not supported between these two devices",
    400: "invalid resource handle",
    600: "device not ready",
    700: "an illegal memory access was encountered",
    701: "too many resources requested for launch",
    702: "the launch timed out and was terminated",
    704: "peer access is already enabled",
    710: "device-side assert triggered",
    719: "unspecified launch failure",
    801: "operation not supported",
    999: "unknown error",
}
"""Number of a CUDA error that programs meet -> its text."""


class Runtime:
    """Replacement for the module of CUDA's runtime, which `torch.cuda.cudart` returns."""

    class cudaError(int):  # CUDA's name
        """The number of an error."""

        success = 0

    def cudaMemGetInfo(self, device: int) -> tuple[int, int]:
        """Return a GPU's free and total bytes."""
        return module.mem_get_info(device)

    def cudaDeviceSynchronize(self) -> int:
        """Wait for the current GPU, and return CUDA's number for success."""
        module.synchronize()
        return 0

    def cudaProfilerStart(self) -> int:
        """Return CUDA's number for success."""
        return 0

    cudaProfilerStop = cudaProfilerStart

    def cudaGetErrorString(self, error: int) -> str:
        """Return the text of an error."""
        return _ERRORS.get(int(error), "unrecognized error code")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        msg = f"simulated GPUs do not have CUDA's runtime function {name}"
        raise UnsupportedError(msg, "use the functions of torch.cuda instead")


class _Ranges:
    """Replacement for NVTX, which marks time ranges for NVIDIA's profilers: it counts them."""

    depth = number = 0

    def rangePushA(self, message: str) -> int:  # NVTX's names
        """Begin a range, and return the number of open ranges around it."""
        self.depth += 1
        return self.depth - 1

    def rangePop(self) -> int:
        """End a range, and return the number of ranges that are still open."""
        self.depth = max(self.depth - 1, 0)
        return self.depth

    def rangeStartA(self, message: str) -> int:
        """Begin a range that any thread may end, and return its number."""
        self.number += 1
        return self.number

    def rangeEnd(self, number: int) -> None:
        """End a range."""

    def markA(self, message: str) -> None:
        """Mark a moment."""


def device_count() -> int:
    """Replace `torch.cuda.device_count`, which asks NVIDIA's library first and remembers its answer."""
    return shown_count()


def nvml_index(device: Any = None) -> int:
    """Replace `torch.cuda._get_nvml_device_index`, which reads CUDA_VISIBLE_DEVICES: `devshim run` empties it."""
    return driver_number(index_of(device))


def _get_device_module(real: Any) -> Any:
    """Return a replacement for `torch.get_device_module`, whose default is the module of the accelerator."""

    @functools.wraps(real)
    def get_device_module(device: Any = None) -> Any:
        return real("cuda" if device is None else device)

    return get_device_module


def start() -> None:
    """Replace the functions that start CUDA: simulated GPUs need no start, but a forked process cannot start it."""
    if SIMULATION.count_of_parent:
        raise forked_error()
    if not SIMULATION.count:
        raise missing_gpu_error(0)
    forking.note_start()


def is_initialized() -> bool:
    """Replace `torch.cuda.is_initialized`: False until the program's first use of a GPU."""
    return SIMULATION.count > 0 and forking.is_started()


def call_now(function: Any, **options: Any) -> None:
    """Replace `torch.cuda._lazy_call`, which would keep a function until CUDA starts.

    CUDA never starts in a forked process, nor without GPUs.
    """
    if SIMULATION.count:
        with forking.note_nothing():  # a seed asks for the current GPU
            function()


def install(patches: Patches) -> None:
    """Install the replacements."""
    for name, function in (*bindings.FUNCTIONS.items(), *streams.FUNCTIONS.items()):
        patches.replace(torch._C, name, function)
    patches.replace(torch._C, "_has_cuda", True)
    patches.replace(torch, "get_device_module", _get_device_module(torch.get_device_module))
    patches.replace(torch.version, "cuda", VERSION)
    cuda = torch.cuda
    replaced = {
        "_initialized": not all_hidden(),
        "_lazy_init": start,
        "init": start,
        "is_initialized": is_initialized,
        "_lazy_call": call_now,
        "_is_in_bad_fork": bindings.FUNCTIONS["_cuda_isInBadFork"],
        "device_count": device_count,
        "_device_count_nvml": device_count,
        "_exchange_device": bindings.FUNCTIONS["_cuda_exchangeDevice"],
        "_maybe_exchange_device": bindings.FUNCTIONS["_cuda_maybeExchangeDevice"],
        "_get_nvml_device_index": nvml_index,
        "_get_device_properties": bindings.get_device_properties,
        "_CudaDeviceProperties": bindings.Properties,
        "default_generators": generators.DEFAULTS,
        "_cudart": Runtime(),
    }
    for name, new in replaced.items():
        patches.replace(cuda, name, new)
    for module_of_start in (cuda.memory, cuda.random):
        for name in ("_lazy_init", "_lazy_call", "is_initialized", "device_count", "_get_nvml_device_index"):
            if name in vars(module_of_start):
                patches.replace(module_of_start, name, replaced[name])
    patches.replace(cuda.graphs, "_cuda_isCurrentStreamCapturing", bindings.FUNCTIONS["_cuda_isCurrentStreamCapturing"])
    patches.replace(cuda.nvtx, "_nvtx", _Ranges())
