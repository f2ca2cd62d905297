"""Kernels at the dispatcher's key CUDA: the result of every function that names a card is on a simulated GPU.

An operator that creates a tensor reaches the dispatcher with the device that it was given. In a CPU build of PyTorch,
the key CUDA has no kernels; a build for CUDA has some, which the kernels here replace. No tensor has this key, so the
kernels here are called only to create tensors.

One kernel remains for the life of the process. After a first call for CUDA, PyTorch's C++ never asks again whether CUDA
exists, so this kernel asks, and the answer is PyTorch's own error.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch

from devshim_backends._torch.simulation.hooks import run, without_modes
from devshim_backends._torch.simulation.internals.composites import CREATING, as_one_call
from devshim_backends._torch.simulation.internals.kernels import KERNELS
from devshim_backends._torch.simulation.internals.schemas import PLANS, plan_of
from devshim_backends._torch.simulation.internals.state import TYPES
from devshim_backends._torch.simulation.native_names.names import to_simulated
from devshim_backends._torch.simulation.tensors import is_pinned, mark_pinned

_OWN = ("empty.memory_format", "empty_strided", "_efficientzerotensor", "zeros", "ones", "full", "scalar_tensor")
_KERNELS = {
    **{name: without_modes(KERNELS[name]) for name in _OWN},
    **{name: as_one_call(name) for name in (*CREATING, "tril_indices", "triu_indices")},
}
_PERMANENT: list[Any] = []
_WHILE_ON: list[Any] = []


def _create(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Compute an operator that has no kernel here, on the simulated GPU that it names."""
    if "cuda" not in TYPES:
        torch.cuda._lazy_init()
        msg = "Torch not compiled with CUDA enabled"
        raise AssertionError(msg)
    arguments = tuple(to_simulated(each) for each in args)
    return run(PLANS.get(op) or plan_of(op), arguments, {name: to_simulated(each) for name, each in kwargs.items()})


_assert_metadata = torch.ops.aten._assert_tensor_metadata.default
_ON_HOST = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)


def _assert_tensor_metadata(x: Any, *args: Any, device: Any = None, **kwargs: Any) -> None:
    """Compare a tensor with what `torch.export` has recorded, where the device is a card."""
    _assert_metadata.redispatch(_ON_HOST, x, *args, device=to_simulated(device), **kwargs)


def _pin(x: Any, device: Any = None) -> Any:
    """Return a copy of a host tensor that counts as pinned: C++ calls this for a script."""
    copy = x.clone()
    mark_pinned(copy)
    return copy


def install() -> None:
    """Register the kernels."""
    if not _PERMANENT:
        everything = torch.library.Library("_", "IMPL")
        for key in ("CUDA", "SparseCUDA", "SparseCsrCUDA"):
            everything.fallback(_create, key)
        _PERMANENT.append(everything)
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        # PyTorch 2.10 warns once that kernels are replaced.
        warnings.filterwarnings("ignore", "Warning only once for all operators")
        for name, kernel in _KERNELS.items():
            library.impl(name, kernel, "CUDA")
    library.impl("_assert_tensor_metadata", _assert_tensor_metadata, "PrivateUse1")
    library.impl("is_pinned", is_pinned, "CPU")
    library.impl("_pin_memory", _pin, "CPU")
    _WHILE_ON.append(library)


def uninstall() -> None:
    """Remove all kernels but the permanent one."""
    while _WHILE_ON:
        _WHILE_ON.pop()._destroy()
