"""Random JAX arrays. JAX's generators have no state, so this module stores it.

The key of a draw is computed from the seed, the device and the number of earlier draws on that device. So equal
programs draw equal values whatever runs on other devices at the same time, and two devices do not draw the same values.
Keys are computed on the host with NumPy, so no JAX array is kept between draws.
"""

from __future__ import annotations

import os
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src.core import trace_state_clean

from devshim.contract.backend import Backend
from devshim.devices.device import KINDS
from devshim.errors import messages
from devshim_backends._jax.creation import JaxCreation

if TYPE_CHECKING:
    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device

_KEY_IMPLEMENTATION = "threefry2x32"
"""JAX's default, named explicitly so that a key has two words whatever ``jax_default_prng_impl`` says."""


@partial(jax.jit, static_argnums=(3, 4, 5))
def _uniform(key: Any, low: Any, high: Any, shape: tuple[int, ...], dtype: np.dtype, rounds: bool) -> Tensor:
    """Draw in one compiled program, so that the key and the bounds are not arrays that take memory on the device."""
    x = jax.random.uniform(jax.random.wrap_key_data(key, impl=_KEY_IMPLEMENTATION), shape, dtype, low, high)
    # Scaling can round up to `high`, which the interval excludes.
    return jnp.minimum(x, jnp.nextafter(high, low)) if rounds else x


@partial(jax.jit, static_argnums=(3, 4))
def _normal(key: Any, loc: Any, scale: Any, shape: tuple[int, ...], dtype: np.dtype) -> Tensor:
    return jax.random.normal(jax.random.wrap_key_data(key, impl=_KEY_IMPLEMENTATION), shape, dtype) * scale + loc


class JaxRandom(JaxCreation, Backend):
    """The mixin for random arrays."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seed = int.from_bytes(os.urandom(8), "little")
        self._draw_counts: dict[Device, int] = {}

    def uniform(self, low: float, high: float, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        wanted = self._drawing_dtype(dtype, jnp.floating)

        def draw() -> Tensor:
            key = self._next_key(device)
            return _uniform(key, wanted.type(low), wanted.type(high), shape, wanted, low not in (0, high))

        return self.create_on(device, draw, wanted)

    def normal(self, loc: float, scale: float, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        wanted = self._drawing_dtype(dtype, jnp.inexact)

        def draw() -> Tensor:
            return _normal(self._next_key(device), wanted.type(loc), wanted.type(scale), shape, wanted)

        return self.create_on(device, draw, wanted)

    def _drawing_dtype(self, dtype: Any | None, kind: Any) -> np.dtype:
        """Return the dtype of random numbers, which must be of a kind, or raise inside a compiled function."""
        if not trace_state_clean() and self.compiling():
            raise messages.tracing(
                self,
                "random",
                "pass a key in and use jax.random, because the compiled function would repeat the same values",
            )
        wanted: np.dtype = np.dtype(jnp.result_type(float) if dtype is None else dtype)
        if not jnp.issubdtype(wanted, kind):
            raise messages.not_a_float_dtype(wanted.name)
        return wanted

    def _next_key(self, device: Device) -> np.ndarray:
        with self._lock:
            count = self._draw_counts.get(device, 0)
            self._draw_counts[device] = count + 1
            entropy = (self._seed, KINDS.index(device.kind), device.index, count)
        return np.random.SeedSequence(entropy).generate_state(2, np.uint32)

    def seed(self, value: int) -> None:
        with self._lock:
            self._seed = value
            self._draw_counts.clear()
