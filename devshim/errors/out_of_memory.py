"""The texts with which drivers, libraries and frameworks report that a device, or the host, is full.

Frameworks pass most of these on in a plain `RuntimeError`, and processes pass on only the text of another process's
error. So the text is often the only evidence. Texts that also mean something else, such as
``CUBLAS_STATUS_NOT_INITIALIZED`` and ``CUSOLVER_STATUS_INTERNAL_ERROR``, are not listed.
"""

from __future__ import annotations

import re

__all__ = ["OTHER_RESOURCES", "TEXTS", "lacks_another_resource", "reports_full_device"]

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
    r"Invalid buffer size: [\d.]+ ?[KMGT]i?B",  # PyTorch on MPS: larger than any buffer of the GPU
    r"DefaultCPUAllocator: (?:can't allocate|not enough) memory",  # PyTorch
    r"Unable to allocate [\d.]+ ?(?:[KMGT]i?)?(?:B|bytes) for an array|_ArrayMemoryError",  # NumPy
    r"bad_alloc|Cannot allocate memory",  # C++; the operating system
    r"(?m:^|\()MemoryError\b",  # the traceback of another process
)
"""Regular expressions; a new one needs a message in ``tests/unit/errors/test_out_of_memory.py``."""

OTHER_RESOURCES = (
    r"No space left on device|Too many open files|(?i:quota exceeded)",  # files
    r"(?:Received|Sent) message larger than max",  # gRPC
    r"Shared memory size limit exceeded",  # XLA: the memory of one block of a kernel
)
"""Other causes that TensorFlow, XLA and gRPC report under ``RESOURCE_EXHAUSTED``; a smaller batch does not help."""

_ANY = "|".join(TEXTS)
_OTHER = "|".join(OTHER_RESOURCES)  # `re` compiles both at the first error, and keeps them

_NEVER = (ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError, TypeError, ValueError)
"""Python's own errors for faults of a program. Their texts may quote anything, so they are not read."""


def reports_full_device(error: BaseException) -> bool:
    """Return True if an error, apart from those that it wraps, says that a device or the host is full."""
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, _NEVER) and type(error).__module__ == "builtins":
        return False
    text = _text(error)
    return re.search(_ANY, text) is not None and re.search(_OTHER, text) is None


def lacks_another_resource(error: BaseException) -> bool:
    """Return True if an error says that something else than memory is used up, such as the disk."""
    return re.search(_OTHER, _text(error)) is not None


def _text(error: BaseException) -> str:
    """Return the text of an error; nothing if the error's own class fails to make one."""
    try:
        return str(error)
    except Exception:
        return ""
