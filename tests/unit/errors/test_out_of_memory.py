"""Tests of the texts of full devices: each pattern has a real message, and similar messages of other faults do not."""

from __future__ import annotations

import re

import pytest

from devshim.errors.out_of_memory import OTHER_RESOURCES, TEXTS, reports_full_device

FULL = [
    # CUDA, its libraries, and PyTorch's wording
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB",
    "HIP out of memory. Tried to allocate 2.00 GiB",
    "XPU out of memory. Tried to allocate 2.00 GiB",
    "MPS backend out of memory (MPS allocated: 6.2 GB, other allocations: 2 GB, max allowed: 9.07 GB)",
    "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call",
    "CUDA_ERROR_OUT_OF_MEMORY: out of memory",
    "cudaErrorMemoryAllocation: out of memory",
    "hipErrorOutOfMemory",
    "hipErrorMemoryAllocation",
    "level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)",
    "Native API failed. Native API returns: 38 (UR_RESULT_ERROR_OUT_OF_HOST_MEMORY)",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED",
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    "cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`",
    "CUDA error: CUSPARSE_STATUS_ALLOC_FAILED when calling `cusparseCreate(handle)`",
    "CUDA error: insufficient resources when calling `cusparseCreate`: CUSPARSE_STATUS_INSUFFICIENT_RESOURCES",
    "cuFFT error: CUFFT_ALLOC_FAILED",
    "HIPFFT_ALLOC_FAILED",
    "CURAND_STATUS_ALLOCATION_FAILED",
    "CUTENSOR_STATUS_ALLOC_FAILED",
    "HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`",
    "miopenStatusAllocFailed",
    "rocblas_status_memory_error",
    "NCCL Error 1: unhandled cuda error. Last error: Cuda failure 2 'out of memory'",
    "Invalid buffer size: 20.00 GiB",
    "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 4",
    "DefaultCPUAllocator: not enough memory: you tried to allocate 4000000000000 bytes.",
    # XLA: JAX and TensorFlow
    "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes.",
    "INTERNAL: RET_CHECK failure: RESOURCE_EXHAUSTED: Failed to allocate request for 8.00GiB (8589934592B) on device",
    "Failed to allocate request for 2.00GiB (2147483648B) on device ordinal 0",
    "jaxlib/gpu/solver_handle_pool.cc:35: operation gpusolverDnCreate(&handle) failed: cuSolver allocation failed",
    "operation cusparseCreate(&handle) failed: cuSparse allocation failed",
    "OOM when allocating tensor with shape[1024,1024] and type float on /job:localhost/device:GPU:0 by allocator GPU_0",
    "Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.00GiB",
    "Failed copying input tensor from CPU:0 to GPU:0 in order to run Equal: Dst tensor is not initialized.",
    "Failed to allocate unified memory",
    "failed to allocate memory",
    # MXNet
    "Check failed: e == cudaSuccess || e == cudaErrorCudartUnloading: cudaMalloc retry failed: out of memory",
    "cudaMalloc failed",
    "Failed to allocate CPU Memory",
    "Failed to allocate 17179869184 bytes",
    # Paddle
    "Out of memory error on GPU 0. Cannot allocate 8.000000GB memory on GPU 0, available memory is only 2.5GB.",
    "ResourceExhaustedError: Fail to alloc memory of 8589934592 size",
    "CUBLAS error(3). [Hint: 'CUBLAS_STATUS_ALLOC_FAILED'.  Resource allocation failed inside the cuBLAS library.",
    "(External) CUSOLVER error(2). [Hint: Resource allocation failed inside the cuSolver library.",
    "Fail to alloc memory of 1024 size, error code is 12",
    "Cannot allocate 3.725290GB",
    # the host
    "std::bad_alloc",
    "[Errno 12] Cannot allocate memory",
    "Unable to allocate 7.28 TiB for an array with shape (1000000, 1000000) and data type float64",
    "numpy._core._exceptions._ArrayMemoryError: no",
    'Traceback (most recent call last):\n  File "a.py", line 1, in f\nMemoryError\n',
    # PyTorch's class in the traceback of another process
    "Caught in DataLoader worker process 0.\ntorch.OutOfMemoryError: full",
    "torch.cuda.OutOfMemoryError: full",
]
OTHER = [
    "",
    "CUDA error: an illegal memory access was encountered",
    "CUDA error: device-side assert triggered",
    "CUDA error: invalid device ordinal",
    "NCCL Error 5: invalid usage",
    "CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
    "cusolver error: CUSOLVER_STATUS_INTERNAL_ERROR",
    "CUDNN_STATUS_NOT_SUPPORTED",
    "Cannot allocate a tensor of a negative size",
    "Failed to allocate a port",
    "the memory of this tensor is not contiguous",
    "pin memory thread exited unexpectedly",
    "INVALID_ARGUMENT: memory kind not found",
    "Invalid buffer size: 3 elements",
    # other resources under the status of a full device
    "RESOURCE_EXHAUSTED: /checkpoints/model.index; No space left on device",
    "RESOURCE_EXHAUSTED: /data/train.tfrecord; Too many open files",
    "status = StatusCode.RESOURCE_EXHAUSTED, details = 'Quota exceeded for requests'",
    "RESOURCE_EXHAUSTED: Received message larger than max (8388608 vs. 4194304)",
    "RESOURCE_EXHAUSTED: Shared memory size limit exceeded: requested 250000, available: 232448",
]


class Foreign(Exception):
    """A framework's own class of error, derived only from `Exception`."""


@pytest.mark.parametrize("kind", [RuntimeError, OSError, SystemError, Foreign])
@pytest.mark.parametrize("text", FULL)
def test_messages_of_a_full_device(text: str, kind: type[Exception]) -> None:
    assert reports_full_device(kind(text))


@pytest.mark.parametrize("text", OTHER)
def test_messages_of_other_faults(text: str) -> None:
    assert not reports_full_device(RuntimeError(text))


@pytest.mark.parametrize("pattern", TEXTS)
def test_each_pattern_has_a_message(pattern: str) -> None:
    assert any(re.search(pattern, text) for text in FULL)


@pytest.mark.parametrize("pattern", OTHER_RESOURCES)
def test_each_other_resource_has_a_message(pattern: str) -> None:
    assert any(re.search(pattern, text) for text in OTHER)


def test_an_error_without_a_text_is_another_fault() -> None:
    class Silent(Exception):
        def __str__(self) -> str:
            raise RuntimeError("CUDA out of memory")

    assert not reports_full_device(Silent())


@pytest.mark.parametrize("kind", [ValueError, TypeError, KeyError, AssertionError])
def test_a_fault_of_the_program_may_quote_anything(kind: type[Exception]) -> None:
    assert not reports_full_device(kind("expected no 'CUDA out of memory'"))


def test_pythons_own_error_needs_no_text() -> None:
    assert reports_full_device(MemoryError())
