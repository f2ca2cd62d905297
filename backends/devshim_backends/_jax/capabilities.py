"""The gaps of JAX, with reasons: the rows of the support table. Imports no framework.

The gaps about tracing have one cause: `jax.jit` traces a function once for all devices, and the result runs on the
device of its arguments. Under `jax.grad` and `jax.vmap` arrays have values, and everything works as in eager code.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from devshim.contract.backend import Gap

if TYPE_CHECKING:
    from collections.abc import Mapping

GAPS: Mapping[str, Gap] = MappingProxyType(
    {
        "trace_device_of": Gap(
            "upstream",
            "jax.jit traces a function once for all devices, so a traced value has no device (jax-ml/jax#26000); "
            "under jax.grad and jax.vmap it works",
        ),
        "trace_place": Gap(
            "upstream",
            "jax.jit ignores device_put: a compiled function runs on the device of its arguments; "
            "under jax.grad and jax.vmap it works",
        ),
        "trace_on": Gap(
            "upstream",
            "jax.jit ignores default_device: a compiled function runs on the device of its arguments; "
            "under jax.grad and jax.vmap it works",
        ),
        "empty_cache": Gap(
            "upstream",
            "JAX's allocator has no call that releases its pool",
            "set XLA_PYTHON_CLIENT_ALLOCATOR=platform before JAX starts, which turns the pool off",
        ),
    }
)

LIMITS: Mapping[str, str] = MappingProxyType(
    {
        "simulate": (
            "memoryview of a tensor on a simulated GPU that was removed raises Python's SystemError instead of "
            "devshim's SimulationError"
        ),
        "simulate_memory": (
            "a Ctrl-C inside _xla_gc_callback, which JAX runs during garbage collection, is printed and then lost "
            "(jax-ml/jax#18246); the count stays exact"
        ),
        "native_names": (
            "XLA compiles for the CPU, even the branch for CUDA that jax.lax.platform_dependent takes; Pallas kernels "
            "without interpret=True, and calls of functions exported only for CUDA, raise"
        ),
        "trace_gradient": (
            "jax.jit drops the arguments on which no result depends, and runs on JAX's default device if none is left: "
            "if only the gradients of a linear function are returned, call the compiled function with ds.run"
        ),
        "models": (
            "models of Keras 3 on its JAX backend, each on one device, and flax NNX modules; JAX itself has no models: "
            "weights and states are trees of arrays, which place moves"
        ),
        "guard": (
            "reads by Python and NumPy, and NumPy arrays and uncommitted arrays that are operands, updates or "
            "arguments of JAX functions and of compiled functions; not reads by jax.debug.print and callbacks, and "
            "not the arguments of pmap before JAX 0.8"
        ),
    }
)

NOT_SIMULATED: Mapping[str, str] = MappingProxyType(
    {
        "jax.experimental.pallas": "it compiles for real GPUs: pass interpret=True to pallas_call on the CPU",
        "jax.ffi": "its kernels are compiled for a platform: register them for the CPU",
    }
)
"""A native call, or the beginning of its name, that simulated GPUs cannot run -> why, and what to do instead."""
