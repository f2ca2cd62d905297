"""Simulated GPUs for PyTorch 2.10 and newer, in pure Python: ``torch.device("sim:1")``.

Requirements of this package:

* Tensors are plain `torch.Tensor`s on ``sim:i``, so that autograd, optimizers, hooks, views and ``isinstance`` are
  PyTorch's own. ``sim`` is the name of PrivateUse1, the dispatch key that PyTorch reserves for unknown devices.
* Tensors contain real data in host memory. Through its DLPack capsule, a host tensor becomes a simulated GPU's tensor,
  and back, without a copy (`relabel`). An operator runs the CPU's kernel on the arguments as host tensors (`hooks`).
* What a real GPU refuses is refused, with PyTorch's messages: mixed devices, a NumPy view of a GPU's tensor, a GPU
  that does not exist, a full GPU.
* Simulation can be switched on and off at any time (`switch`). Two things remain, because PyTorch allows a process to
  do them only once: the name ``sim`` in C++, and kernels that refuse while no GPU is simulated.

The modules that only this adapter has are in ``internals``.

| module | concern |
|---|---|
| `state` | the number of simulated GPUs, each thread's current GPU, the meaning of a device-like argument |
| `relabel` | the same memory as a tensor of another device |
| `memory` | which storage is on which GPU |
| `replaced_data` | ``x.data = y`` between the host and a GPU |
| `schemas`, `host_arguments`, `hooks` | every operator: its arguments on the way to the host, and its results back |
| `written_arguments` | operators that write to their arguments |
| `device_rules` | which mixtures of devices are refused |
| `composites` | operators that run on the CPU as one call, although PyTorch would decompose them |
| `cpu_only` | operators that CUDA does not have |
| `linalg_drivers` | the drivers of CUDA's libraries for linear algebra |
| `lu_without_pivots` | factors of matrices, which only CUDA computes without exchanging rows |
| `dtypes` | operators in dtypes for which CUDA has kernels and PyTorch's CPU build does not |
| `kernels`, `storage`, `recurrent_cells`, `sync_batch_norm`, `attention`, `sparse` | operators with own kernels |
| `products` | products of matrices with ``out_dtype=`` |
| `cudnn`, `semi_structured`, `int4_weights` | other operators that only CUDA has |
| `cuda_only` | operators that only CUDA has, and that are refused |
| `flash_attention`, `efficient_attention`, `attention_formula` | CUDA's own operators for attention |
| `generators` | random numbers |
| `autocast` | mixed precision |
| `module`, `streams`, `accelerator` | ``torch.sim``, and the functions behind ``torch.accelerator`` |
| `device_names` | the names that PyTorch adds for a custom device, only while GPUs are simulated |
| `patches`, `tensors`, `indices`, `engine`, `comm`, `defaults` | patches of PyTorch, each with its reason |
| `sent_tensors` | tensors that a program sends to another process |
| `backward_nodes` | the GPU and the stream that are current in a backward pass |
| `late_copies`, `stream_order` | copies that arrive when something waits for them, and the waits of each stream |
| `untraced` | keeping `torch.compile` out of this package |
| `switch` | switching on and off, and the steps that happen once |
| `simulate` | the part of the adapter that loads this package on demand |
"""
