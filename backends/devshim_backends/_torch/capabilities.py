"""The gaps and limits of PyTorch and of this adapter, with reasons.

Imports no framework, because the support table is generated from this module.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from devshim.contract.backend import Gap

if TYPE_CHECKING:
    from collections.abc import Mapping

GAPS: Mapping[str, Gap] = MappingProxyType(
    {
        "trace_gradient_models": Gap(
            "upstream",
            "torch.func, which torch.compile traces (2.13), refuses functions that write to a model's buffers, "
            "as batch normalization does; compile the model, and differentiate outside",
        ),
        "op_scope": Gap(
            "never", "PyTorch's operators compute on the device of their arguments, so a scope affects only creation"
        ),
    }
)

LIMITS: Mapping[str, str] = MappingProxyType(
    {
        "simulate": (
            "when autograd records an operator, PyTorch's C++ (2.13) calls a Python device guard in a function that "
            "must not raise (noexcept), so Ctrl-C at that moment ends the process; Ctrl-C during a backward pass is "
            "delayed until the pass has ended"
        ),
        "native_names": (
            "torch.compile runs eagerly, and warns; torch.device(1), a number alone, prints sim:1, and so does "
            "TorchScript; CUDA graphs, torch.cuda.nccl, sensors, allocators and sharing with other processes are "
            "refused; tried with builds for the CPU"
        ),
        "models": (
            "every class in torch.optim is supported; tensors in a module's lists, dicts and plain attributes stay, "
            "because for PyTorch they are not part of the module; generators, frozen TorchScript, DTensor and "
            "quantized parameters are refused"
        ),
        "guard": (
            "reports reads by Python and NumPy, host operands, and operators that wait for the GPU internally, such as "
            "nonzero (by CUDA's sync debug mode, and on simulated GPUs); does not report operators of "
            "torch.distributed and torch.sparse, or what PyTorch's own threads do"
        ),
    }
)

NOT_SIMULATED: Mapping[str, str] = MappingProxyType(
    {
        "torch.cuda.CUDAGraph": "it records the work of a real GPU: call the function itself",
        "torch.cuda.graph": "it records the work of a real GPU: call the function itself",
        "torch.cuda.graphs": "it records the work of a real GPU: call the function itself",
        "torch.cuda.make_graphed_callables": "it records the work of a real GPU: call the function itself",
        "torch.cuda.MemPool": "it belongs to the allocator of real GPUs: leave it out",
        "torch.cuda.CUDAPluggableAllocator": "it belongs to the allocator of real GPUs: leave it out",
        "torch.cuda.memory.CUDAPluggableAllocator": "it belongs to the allocator of real GPUs: leave it out",
        "torch.cuda.cudart": "it calls CUDA itself: run this part on a real GPU",
        "torch.cuda.gds": "it calls CUDA itself: run this part on a real GPU",
        "torch.cuda.jiterator": "it compiles for real GPUs only: write the function with PyTorch operators",
        "torch.cuda.nccl": "it calls NCCL itself: use torch.distributed",
        "torch.cuda.tunable": "it measures kernels of real GPUs: leave it out",
        "torch.utils.cpp_extension.CUDAExtension": "it compiles for real GPUs only: use CppExtension for the CPU",
    }
)
"""A native call, or the beginning of its name, that simulated GPUs cannot run -> why, and what to do instead."""
