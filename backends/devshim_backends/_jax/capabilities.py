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
            "jax.jit traces a function once for every device, so a traced value has none (jax-ml/jax#26000); "
            "under jax.grad and jax.vmap it works",
        ),
        "trace_place": Gap(
            "upstream",
            "inside jax.jit JAX ignores device_put: what is compiled runs where its arguments are; "
            "under jax.grad and jax.vmap it works",
        ),
        "trace_on": Gap(
            "upstream",
            "inside jax.jit JAX ignores default_device: what is compiled runs where its arguments are; "
            "under jax.grad and jax.vmap it works",
        ),
        "empty_cache": Gap(
            "upstream",
            "JAX's allocator has no call that gives its pool back; XLA_PYTHON_CLIENT_ALLOCATOR=platform, set before "
            "the start, makes it keep none",
        ),
    }
)

LIMITS: Mapping[str, str] = MappingProxyType(
    {
        "simulate": (
            "memoryview of a tensor on a simulated GPU that was taken away raises Python's SystemError, whose place "
            "devshim's own cannot take"
        ),
        "simulate_memory": (
            "Ctrl-C that comes inside JAX's own function for the garbage collector, _xla_gc_callback, is printed and "
            "lost (jax-ml/jax#18246); the count stays exact"
        ),
        "models": (
            "those of Keras 3 on its JAX backend, on one device each, and flax NNX modules; JAX itself has no models:"
            " weights and states are trees of arrays, which place moves"
        ),
        "guard": (
            "what Python and NumPy read, NumPy's arrays and uncommitted ones as operands, in updates and as arguments"
            " of JAX's functions and compiled ones; not what jax.debug.print and callbacks read, nor what pmap carries"
            " before JAX 0.8"
        ),
    }
)
