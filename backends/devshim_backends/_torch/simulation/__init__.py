"""Simulated GPUs for PyTorch 2.10 and newer, in Python alone: ``torch.device("sim:1")``.

Requirements these rooms answer:

* Tensors are plain `torch.Tensor`s on ``sim:i``, so that autograd, optimizers, hooks, views and ``isinstance`` are
  PyTorch's own.  PrivateUse1, the dispatch key PyTorch keeps for devices it does not know, is named ``sim``.
* They hold real data in host memory.  A host tensor becomes a card's, and back, by its DLPack capsule: no copy
  (`relabel`).  An operator is computed by the CPU's kernel on the arguments as the host sees them (`dispatch`).
* What a real card refuses is refused, in PyTorch's words: mixed devices, a host array of a card's tensor, a card that
  is not there, a full one.
* Switched on and off at any time (`switch`).  What PyTorch lets a process do only once stays: the name ``sim``, its
  module and methods, and kernels that refuse when no card is shown.

| room | concern |
|---|---|
| `state` | how many cards are shown, the current one of each thread, what a device-like argument means |
| `relabel` | the same memory as a tensor of another device |
| `memory` | what is on which card |
| `schemas`, `carry`, `dispatch` | every operator: what it is given on its way to the host, and its results back |
| `mixing` | what is refused where devices are mixed |
| `whole` | which operators go to the CPU whole, where PyTorch would take them apart |
| `kernels`, `storages`, `cells`, `attention`, `sparse` | operators and tensors that need kernels of their own |
| `generators` | random numbers |
| `autocast` | mixed precision |
| `module`, `streams`, `accelerator` | ``torch.sim``, and what ``torch.accelerator`` asks |
| `patches`, `tensors`, `indices`, `engine`, `comm`, `defaults` | replaced in PyTorch, each with its reason |
| `untraced` | keeping `torch.compile` out of here |
| `switch` | on, off, and what happens once |
"""
