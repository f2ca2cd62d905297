"""Random draws from JAX, whose generators keep no state: the state is kept here.

A draw's key is made of the seed, the device and how many draws that device has made, so that equal programs
give equal draws whatever runs at the same time on other devices, and two devices do not draw the same values.
Keys are made on the host, of NumPy numbers: none is alive between draws.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from devshim import _refusals
from devshim.backend import Backend
from devshim.device import KINDS
from devshim_backends._jax.creation import JaxCreation

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.backend import Tensor
    from devshim.device import Device

_IMPLEMENTATION = "threefry2x32"
"""JAX's default, named so that a key has two words whatever ``jax_default_prng_impl`` says."""


class JaxDraws(JaxCreation, Backend):
    """The room "draws" of the JAX adapter."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seed = int.from_bytes(os.urandom(8), "little")
        self._drawn: dict[Device, int] = {}

    def uniform(self, low: float, high: float, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        def draw(key: Any, dtype: np.dtype) -> Tensor:
            x = jax.random.uniform(key, shape, dtype, low, high)
            if low == 0 or low == high:
                return x
            # Scaling can round up to `high`, which is not to be reached.
            return jnp.minimum(x, jnp.nextafter(dtype.type(high), dtype.type(low)))

        return self._draw(draw, "f", dtype, device)

    def normal(self, loc: float, scale: float, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        def draw(key: Any, dtype: np.dtype) -> Tensor:
            return jax.random.normal(key, shape, dtype) * dtype.type(scale) + dtype.type(loc)

        return self._draw(draw, "fc", dtype, device)

    def _draw(self, how: Callable[[Any, np.dtype], Tensor], kinds: str, dtype: Any | None, device: Device) -> Tensor:
        if self.compiling():
            raise _refusals.tracing(
                self, "random", "pass a key in and use jax.random: here every call would give the same values"
            )
        wanted = self._float(dtype)
        if not jnp.issubdtype(wanted, jnp.floating) and wanted.kind not in kinds:
            raise _refusals.bad_argument("dtype", wanted.name, "a floating dtype")

        def draw(dtype: np.dtype) -> Tensor:
            return how(jax.random.wrap_key_data(self._key(device), impl=_IMPLEMENTATION), dtype)

        return self.make(draw, dtype=wanted, device=device)

    def _key(self, device: Device) -> np.ndarray:
        with self._lock:
            drawn = self._drawn.get(device, 0)
            self._drawn[device] = drawn + 1
            entropy = (self._seed, KINDS.index(device.kind), device.index, drawn)
        return np.random.SeedSequence(entropy).generate_state(2, np.uint32)

    def seed(self, value: int) -> None:
        with self._lock:
            self._seed = value
            self._drawn.clear()
