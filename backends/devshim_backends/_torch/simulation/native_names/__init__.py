"""Native names: programs that are written for real cards run on simulated GPUs: ``torch.zeros(3, device="cuda:1")``.

Requirements of this package:

* The tensors are the simulated GPUs' own, on ``sim:1``. A program sees their device as a real ``torch.device`` object,
  ``cuda:1``, which PyTorch's CPU build can make.
* A device in an argument is translated by PyTorch's dispatcher, below every function and mode and in every thread: the
  key CUDA, which has no kernels in a CPU build, gets kernels that create tensors on simulated GPUs.
* Python functions are replaced only if C++ needs CUDA before the dispatcher: if it compares devices, or asks a device
  guard for the current one.
* The functions of ``torch.cuda`` are PyTorch's own. The C functions under them, which a CPU build lacks, are here.
* A call without a counterpart raises `UnsupportedError`, and names the line to write instead.
* Switched off, no attribute of PyTorch is changed. A kernel remains at the key CUDA, which raises PyTorch's own error.

The modules that only this adapter has are in ``internals``.

| module | concern |
|---|---|
| `names` | ``cuda:1`` to the simulated GPU's device, and back |
| `operators` | kernels at the dispatcher's key CUDA |
| `tensors`, `saved_devices` | methods and properties of tensors and storages |
| `constructors` | functions that create tensors, and the default device |
| `numbered` | ``torch.device(1)`` |
| `tensor_types` | ``torch.cuda.FloatTensor`` and the other legacy types |
| `forking` | forked processes, which cannot use CUDA |
| `deterministic` | ``torch.use_deterministic_algorithms`` |
| `sync_debug` | ``torch.cuda.set_sync_debug_mode`` |
| `bindings`, `runtime` | the C functions under ``torch.cuda``, and its other parts |
| `libraries` | versions and choices of cuDNN, MAGMA, cuSOLVER, cuBLAS, cuFFT, NCCL and fused attention |
| `streams` | ``torch.cuda.Stream`` and ``torch.cuda.Event`` |
| `autocast` | ``torch.autocast("cuda")`` |
| `refused` | calls that raise `UnsupportedError` |
| `compiling` | ``torch.compile``: fake tensors, and its default backend |
| `scripting`, `script_graphs`, `script_nodes`, `script_calls` | ``torch.jit``: scripts that use and compare cards |
| `script_files`, `onnx_export` | files of scripts, and ``torch.onnx.export`` |
| `distributed`, `distributed_random` | ``torch.distributed`` with the backend nccl, and random operators there |
| `backends`, `nccl_checks` | which backend a program gets, and what NCCL's process group refuses |
| `destroyed_groups` | process groups that the program has destroyed |
| `coalescing`, `nccl_calls`, `nccl_options` | parts of ``torch.distributed`` that gloo or simulated GPUs lack |
| `step_times`, `unused_parameters` | parts of `DistributedDataParallel` that simulated GPUs lack |
| `custom_operators` | kernels for CUDA that a program registers |
| `compiled_libraries` | libraries with compiled kernels for CUDA, such as bitsandbytes |
| `profiling` | PyTorch's profiler |
| `switch` | switching on and off |
"""
