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
            "torch.compile runs eagerly, and warns; TorchScript refuses generators of GPUs, and pin_memory=x with a "
            "variable, at their line; functions that were imported by name before, such as zeros, refuse device= "
            "together with out=; CUDA graphs, torch.cuda.nccl, temperatures, allocators and sharing with other "
            "processes are refused; tested with builds for the CPU"
        ),
        "models": (
            "every class in torch.optim is supported; tensors in a module's lists, dicts and plain attributes stay, "
            "because for PyTorch they are not part of the module, unless its class overrides _apply; generators, "
            "frozen TorchScript, DTensor and quantized parameters are refused"
        ),
        "guard": (
            "reports reads by Python and NumPy, host operands, and operators that wait for the GPU internally, such as "
            "nonzero (by CUDA's sync debug mode, and on simulated GPUs); does not report operators of "
            "torch.distributed and torch.sparse, or what PyTorch's own threads do"
        ),
    }
)

_GRAPHS = "it records the work of a real GPU: call the function itself"
_ALLOCATOR = "it belongs to the allocator of real GPUs: leave it out"
_KERNELS = "it compiles for real GPUs only: write the function with PyTorch operators"
_SENSORS = "it reads a sensor of a real GPU: leave it out"
_HANDLES = "it is for kernels of real GPUs: write the function with PyTorch operators"
_NCCL = "it calls NCCL itself: use torch.distributed, or torch.nn.parallel.comm"
_FILES = "it moves data between files and real GPUs: read the file, and use x.to(device)"
_TUNING = "it measures kernels of real GPUs: leave it out"

_RPC = "TensorPipe sends the memory of real GPUs only: leave the map out, send x.cpu(), and move it to the GPU there"

COMPILED: Mapping[str, str] = MappingProxyType(
    {
        "bitsandbytes": (
            "simulated GPUs cannot run the kernels that bitsandbytes has compiled for CUDA: use its layers, its "
            "optimizers, or the operators that it also has for the CPU"
        ),
        "triton": "Triton compiles for real GPUs only: set TRITON_INTERPRET=1 for its own interpreter",
    }
)
"""A library -> why the functions that it has only for real GPUs are refused, and what to use instead."""

# Calls that are refused with this argument only.
CUDAGRAPHS = 'torch.compile(backend="cudagraphs")'
SHARED_EVENT = "torch.cuda.Event(interprocess=True)"

OOM_OBSERVER = "torch._C._cuda_attach_out_of_memory_observer"
"""A function that builds without CUDA lack."""

INTERFACE = "torch.Tensor.__cuda_array_interface__"
"""The property through which libraries that compute on CUDA cards read a tensor."""

DEVICE_MAPS = "torch.distributed.rpc.TensorPipeRpcBackendOptions.set_device_map"
"""The call that maps the GPUs of one process to those of another; only a map of GPUs is refused."""

NOT_SIMULATED: Mapping[str, str] = MappingProxyType(
    {
        INTERFACE: (
            "a simulated GPU's memory is the host's, so no library that computes on CUDA cards can read it: "
            "hand over a copy on the host: x.cpu().numpy()"
        ),
        **{
            f"torch.cuda.{within}{name}": _GRAPHS
            for within in ("", "graphs.")
            for name in ("CUDAGraph", "graph", "make_graphed_callables", "graph_pool_handle")
        },
        **{
            f"torch.cuda.{within}{name}": _ALLOCATOR
            for within in ("", "memory.")
            for name in (
                *("MemPool", "CUDAPluggableAllocator", "use_mem_pool", "change_current_allocator", "memory_snapshot"),
                *("caching_allocator_alloc", "caching_allocator_delete", "caching_allocator_enable"),
                *("caching_allocator_disabled", "host_memory_stats", "host_memory_stats_as_nested_dict"),
                *("reset_peak_host_memory_stats", "reset_accumulated_host_memory_stats"),
            )
        },
        **{
            f"torch.cuda.memory.{name}": _ALLOCATOR
            for name in ("_record_memory_history", "_dump_snapshot", "_snapshot", "_save_segment_usage")
        },
        **dict.fromkeys(
            (
                *("torch.cuda.jiterator._create_jit_fn", "torch.cuda.jiterator._create_multi_output_jit_fn"),
                "torch.cuda._compile_kernel",
            ),
            _KERNELS,
        ),
        **{f"torch.cuda.{name}": _SENSORS for name in ("temperature", "power_draw", "clock_rate")},
        **dict.fromkeys(
            (
                *("torch.cuda.current_blas_handle", "torch.cuda.current_solver_handle"),
                *("torch.backends.cuda.blas_workspace_size", "torch.backends.cuda.cublas_workspace_size"),
                "torch.backends.cuda.cublaslt_workspace_size",
            ),
            _HANDLES,
        ),
        **{
            f"torch.cuda.{name}": "a stream of another library is on a real GPU: use torch.cuda.Stream()"
            for name in ("ExternalStream", "get_stream_from_external")
        },
        **{
            f"torch.cuda.nccl.{name}": _NCCL
            for name in ("all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "unique_id", "init_rank")
        },
        **{f"torch.cuda.gds.{name}": _FILES for name in ("GdsFile", "gds_register_buffer", "gds_deregister_buffer")},
        **{
            f"torch.cuda.tunable.{name}": _TUNING
            for name in (
                *("enable", "tuning_enable", "record_untuned_enable", "set_max_tuning_duration", "get_results"),
                *("get_max_tuning_duration", "set_max_tuning_iterations", "get_max_tuning_iterations"),
                *("set_filename", "get_filename", "get_validators", "write_file", "write_file_on_exit", "read_file"),
                *("tune_gemm_in_file", "mgpu_tune_gemm_in_file", "set_rotating_buffer_size"),
                *("get_rotating_buffer_size", "set_numerical_check_tolerances"),
            )
        },
        CUDAGRAPHS: 'it records the work of a real GPU: compile with backend="aot_eager", or leave backend out',
        SHARED_EVENT: (
            "an event of a simulated GPU cannot be shared with another process: "
            "create it without interprocess=True, and use a multiprocessing.Event"
        ),
        OOM_OBSERVER: "it belongs to the allocator of real GPUs: catch torch.OutOfMemoryError",
        "torch.cuda.green_contexts.GreenContext.create": "it divides a real GPU: leave it out",
        "torch.cuda.GreenContext.create": "it divides a real GPU: leave it out",
        "torch.cuda._sanitizer.enable_cuda_sanitizer": (
            "it watches the streams of a real GPU: use devshim run --async-copies late"
        ),
        DEVICE_MAPS: _RPC,
        "torch.utils.cpp_extension.CUDAExtension": "it compiles for real GPUs only: use CppExtension for the CPU",
    }
)
"""A native call, or the beginning of its name, that simulated GPUs cannot run -> why, and what to do instead.

The name of a property begins with the class, such as ``torch.Tensor``. A call that is refused with one argument only is
written with it: the keyword and the constant. `simulation.native_names.refused` refuses these
calls while the program runs.
"""

COMPILES_SOURCES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "torch.utils.cpp_extension.load": ("name", "sources"),
        "torch.utils.cpp_extension.load_inline": ("name", "cpp_sources", "cuda_sources"),
        "torch.utils.cpp_extension.CppExtension": ("name", "sources"),
    }
)
"""A function that compiles sources -> its first parameters. It is refused if a source is for CUDA."""
