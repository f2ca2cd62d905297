"""NVIDIA's libraries under PyTorch: programs ask for their versions and choose between them, which has no effect here.

A build for the CPU answers that it lacks cuDNN, cuSPARSELt, MAGMA, cuSOLVER, cuBLASLt, cuFFT's cache and fused
attention. Every real card has them, and simulated GPUs compute the same with the CPU's kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.backends import cuda, cudnn, cusparselt
from torch.overrides import handle_torch_function, has_torch_function_unary

from devshim.simulation.patching import Patches
from devshim_backends._torch.simulation.internals.overrides import Override
from devshim_backends._torch.simulation.internals.state import index_of
from devshim_backends._torch.simulation.native_names.names import CARDS

CUDNN_VERSION = 91002
"""The version of cuDNN that programs ask for: 9.10.2."""
NCCL_VERSION = (2, 27, 5)
"""The version of NCCL that programs ask for."""
CUSPARSELT_VERSION = 800
"""The version of cuSPARSELt that programs ask for: 0.8.0."""
_OF_CUDNN = frozenset({torch.float16, torch.float32, torch.float64})
"""The dtypes for which PyTorch says that cuDNN accepts them."""
_PLANS = 4095
"""The capacity of cuFFT's cache of plans."""


class _Choices:
    """The choice of the program in this process: None for PyTorch's default."""

    linalg: Any = None
    blas: Any = None
    benchmarks = 10
    plans: dict[int, int] = {}  # noqa: RUF012  # of the process, and replaced at the end


def _get_preferred(name: str, real: Callable[[], Any]) -> Callable[[], Any]:
    """Return a replacement for a function of ``torch._C`` that returns the preferred library."""

    def get() -> Any:
        found = getattr(_Choices, name)
        return real() if found is None else found

    return get


def _choose(name: str, libraries: tuple[Any, ...], real: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return a replacement for a function that sets the preferred library; the real one refuses those of AMD."""

    def choose(library: Any) -> None:
        if library not in libraries:
            real(library)
        setattr(_Choices, name, library)

    return choose


def _set_benchmark_limit(limit: int) -> None:
    _Choices.benchmarks = limit


def _plan_capacity(device: Any) -> int:
    return _Choices.plans.get(index_of(device), _PLANS)


def _set_plan_capacity(device: Any, capacity: int) -> None:
    _Choices.plans[index_of(device)] = capacity


def _no_plans(device: Any) -> int:
    """Return the number of plans of a card, after a check that it exists: the CPU's library has no cache."""
    index_of(device)
    return 0


def _is_acceptable(input: Any) -> bool:
    """Replace `torch.cudnn_is_acceptable`: cuDNN computes for a card's tensor with elements in some dtypes.

    PyTorch's operators ask without this function, because they would call cuDNN, which is not there.
    """
    if has_torch_function_unary(input):
        return bool(handle_torch_function(torch.cudnn_is_acceptable, (input,), input))
    return bool(torch._C._get_cudnn_enabled() and input.is_cuda and input.dtype in _OF_CUDNN and input.numel())


def _replacements() -> dict[str, Any]:
    """Return the replacements of attributes of ``torch._C``."""
    real, linalg, blas = torch._C, torch._C._LinalgBackend, torch._C._BlasBackend
    major, minor, patch = NCCL_VERSION
    return {
        "_has_cudnn": True,
        "_has_magma": True,
        "_has_cusparselt": True,
        "_get_linalg_preferred_backend": _get_preferred("linalg", real._get_linalg_preferred_backend),
        "_set_linalg_preferred_backend": _choose(
            "linalg", (linalg.Default, linalg.Cusolver, linalg.Magma), real._set_linalg_preferred_backend
        ),
        "_get_blas_preferred_backend": _get_preferred("blas", real._get_blas_preferred_backend),
        "_set_blas_preferred_backend": _choose(
            "blas", (blas.Default, blas.Cublas, blas.Cublaslt), real._set_blas_preferred_backend
        ),
        "_cuda_get_cudnn_benchmark_limit": lambda: _Choices.benchmarks,
        "_cuda_set_cudnn_benchmark_limit": _set_benchmark_limit,
        "_is_flash_attention_available": lambda: True,
        "_nccl_version": lambda: major << 32 | minor << 16 | patch,
        "_nccl_version_suffix": lambda: b"",
        "_cuda_tunableop_is_enabled": lambda: False,
        "_cuda_tunableop_tuning_is_enabled": lambda: False,
        "_cuda_record_untuned_is_enabled": lambda: False,
    }


def install(patches: Patches) -> None:
    """Install the replacements."""
    for name, new in _replacements().items():
        patches.replace(torch._C, name, new)
    patches.replace(torch.cuda, "has_magma", True)
    patches.replace(torch, "_use_cudnn_rnn_flatten_weight", lambda: False)  # a build for CUDA would call cuDNN
    patches.replace(torch, "cudnn_is_acceptable", Override(_is_acceptable, torch.cudnn_is_acceptable))
    functions = cudnn.m  # `cudnn` is an object that has this module's functions
    patches.replace(functions, "_init", lambda: True)
    patches.replace(functions, "version", lambda: CUDNN_VERSION)
    patches.replace(cusparselt, "version", lambda: CUSPARSELT_VERSION)
    plans = cuda.cuFFTPlanCache
    attribute = cuda.cuFFTPlanCacheAttrContextProp
    for name, get, change in (
        ("size", _no_plans, vars(plans)["size"].setter),
        ("max_size", _plan_capacity, _set_plan_capacity),
    ):
        patches.replace(torch, f"_cufft_get_plan_cache_{name}", get)
        patches.replace(plans, name, attribute(get, change))
    patches.replace(torch, "_cufft_set_plan_cache_max_size", _set_plan_capacity)
    patches.replace(torch, "_cufft_clear_plan_cache", _no_plans)
    cuda.cufft_plan_cache.caches[:] = [plans(index) for index in range(CARDS)]  # the number of cards can change


def forget_choices() -> None:
    """Discard a program's choices."""
    _Choices.linalg = _Choices.blas = None
    _Choices.benchmarks, _Choices.plans = 10, {}
    cuda.cufft_plan_cache.caches.clear()
