"""The texts with which drivers, libraries and frameworks report that a device, or the host, is full.

Frameworks pass most of these on in a plain `RuntimeError`, and processes pass on only the text of another process's
error. So the text is often all that is left. Texts that also mean something else, such as
``CUBLAS_STATUS_NOT_INITIALIZED`` and ``CUSOLVER_STATUS_INTERNAL_ERROR``, are not listed.
"""

from __future__ import annotations

import re

__all__ = ["TEXTS", "reports_full_device"]

TEXTS = (
    r"(?i:out of (?:device |host |GPU )?memory)",  # CUDA, HIP, XPU, MPS; XLA; Paddle
    r"Out[Oo]f(?:Device|Host)?Memory|OUT_OF_(?:DEVICE_|HOST_)?MEMORY",  # CUDA_ERROR_..., hipError..., Level Zero's
    r"cudaErrorMemoryAllocation|hipErrorMemoryAllocation",
    r"RESOURCE_EXHAUSTED|ResourceExhausted",  # XLA, PJRT and TensorFlow; Paddle
    r"(?:CUBLAS|CUSOLVER|CUSPARSE|CUDNN|CUTENSOR|HIPBLAS|HIPSOLVER|HIPSPARSE)_STATUS_ALLOC_FAILED",
    r"CUDNN_STATUS_INTERNAL_ERROR_(?:HOST|DEVICE)_ALLOCATION_FAILED",  # cuDNN 9
    r"CUSPARSE_STATUS_INSUFFICIENT_RESOURCES|CURAND_STATUS_ALLOCATION_FAILED|(?:CU|HIP)FFT_ALLOC_FAILED",
    r"miopenStatusAllocFailed|rocblas_status_memory_error",
    r"(?i:cu(?:blas|solver|sparse|fft)) allocation failed",  # JAX
    r"allocation failed inside the cu\w+ library",  # Paddle
    r"OOM when allocating|ran out of memory trying to allocate",  # TensorFlow
    r"Dst tensor is not initialized",  # TensorFlow: a copy to a GPU, which allocates first (PrepareCopy in gpu_util.cc)
    r"[Ff]ailed to allocate (?:host |unified |CPU |GPU )?[Mm]emory|[Ff]ailed to allocate request for",
    r"(?:[Ff]ailed to|[Cc]annot) allocate [\d.]+ ?(?:[KMGT]i?)?(?:B\b|bytes)|[Ff]ail(?:ed)? to alloc memory",
    r"cudaMalloc(?:Async|Managed|Host)? (?:retry )?failed",  # MXNet
    r"DefaultCPUAllocator: (?:can't allocate|not enough) memory",  # PyTorch
    r"Unable to allocate [\d.]+ ?(?:[KMGT]i?)?(?:B|bytes) for an array|_ArrayMemoryError",  # NumPy
    r"bad_alloc|Cannot allocate memory",  # C++; the operating system
    r"(?m:^|\()MemoryError\b",  # the traceback of another process
)
"""Regular expressions; a new one needs a message in ``tests/unit/errors/test_out_of_memory.py``."""

_ANY = re.compile("|".join(TEXTS))

_NEVER = (ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError, TypeError, ValueError)
"""Python's own errors for faults of a program. Their texts may quote anything, so they are not read."""


def reports_full_device(error: BaseException) -> bool:
    """Return True if an error, apart from those that it wraps, says that a device or the host is full."""
    if isinstance(error, MemoryError):
        return True
    fault = isinstance(error, _NEVER) and type(error).__module__ == "builtins"
    return not fault and _ANY.search(str(error)) is not None
