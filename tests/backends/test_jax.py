"""The conformance kit on JAX."""

from __future__ import annotations

from typing import Any

from devshim.testing import Conformance


class TestJax(Conformance):
    backend = "jax"

    def gradient(self, fn: Any, x: Any) -> Any:
        import jax

        return jax.grad(lambda t: (fn(t) ** 2).sum())(x)

    def compiled(self, fn: Any) -> Any:
        import jax

        return jax.jit(fn)

    def native_zeros(self) -> Any:
        import jax.numpy as jnp

        return jnp.zeros((2, 2))

    def global_state(self) -> object:
        import jax

        return jax.config.jax_enable_x64, jax.config.jax_default_device, jax.config.jax_platforms
