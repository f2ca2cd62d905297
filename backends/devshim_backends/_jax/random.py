"""Random JAX arrays. JAX's generators have no state, so this module stores it.

The key of a draw is computed from the seed, the device and the number of earlier draws on that device. So equal
programs draw equal values even if other devices are in use at the same time, and two devices do not draw the same
values. Keys are computed on the host with NumPy, so no JAX array is kept between draws.

A program's own keys are arrays whose dtype no other library has. Checkpoints store their data and the name of the
generator.
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
from devshim.devices.ranges import require_fit
from devshim.errors import ConversionError, messages
from devshim.errors.formatting import show
from devshim_backends._jax.creation import JaxCreation
from devshim_backends._jax.internals.widths import default_dtype

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


@partial(jax.jit, static_argnums=(3, 4, 5))
def _randint(key: Any, low: Any, high: Any, shape: tuple[int, ...], drawn: np.dtype, dtype: np.dtype) -> Tensor:
    typed = jax.random.wrap_key_data(key, impl=_KEY_IMPLEMENTATION)
    return jax.random.randint(typed, shape, low, high, drawn).astype(dtype)


@partial(jax.jit, static_argnums=(1, 2))
def _permutation(key: Any, n: int, dtype: np.dtype) -> Tensor:
    return jax.random.permutation(jax.random.wrap_key_data(key, impl=_KEY_IMPLEMENTATION), n).astype(dtype)


@partial(jax.jit, static_argnums=(2, 3))
def _bernoulli(key: Any, p: Any, shape: tuple[int, ...], dtype: np.dtype) -> Tensor:
    x = jax.random.uniform(jax.random.wrap_key_data(key, impl=_KEY_IMPLEMENTATION), shape, np.float64)
    return (x < p).astype(dtype)


class JaxRandom(JaxCreation, Backend):
    """The mixin for random arrays."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seed = int.from_bytes(os.urandom(8), "little")
        self._draw_counts: dict[Device, int] = {}

    def uniform(
        self,
        low: float,
        high: float,
        shape: tuple[int, ...],
        dtype: Any | None,
        device: Device,
        seed: int | None = None,
    ) -> Tensor:
        wanted = self._drawing_dtype(dtype, jnp.floating)

        def draw() -> Tensor:
            key = self._next_key(device, seed)
            return _uniform(key, wanted.type(low), wanted.type(high), shape, wanted, low not in (0, high))

        return self.create_on(device, draw, wanted)

    def normal(
        self,
        loc: float,
        scale: float,
        shape: tuple[int, ...],
        dtype: Any | None,
        device: Device,
        seed: int | None = None,
    ) -> Tensor:
        wanted = self._drawing_dtype(dtype, jnp.inexact)

        def draw() -> Tensor:
            return _normal(self._next_key(device, seed), wanted.type(loc), wanted.type(scale), shape, wanted)

        return self.create_on(device, draw, wanted)

    def randint(
        self, low: int, high: int, shape: tuple[int, ...], dtype: Any | None, device: Device, seed: int | None = None
    ) -> Tensor:
        self._refuse_compiled()
        wanted = default_dtype(int) if dtype is None else np.dtype(dtype)
        require_fit(low, wanted.name)
        require_fit(high - 1, wanted.name)
        narrow = low >= -(2**31) and high < 2**31
        drawn = np.dtype(np.int32 if narrow else np.int64)

        def draw() -> Tensor:
            return _randint(self._next_key(device, seed), drawn.type(low), drawn.type(high), shape, drawn, wanted)

        return self.create_on(device, draw, wanted if narrow else drawn)

    def permutation(self, n: int, dtype: Any | None, device: Device, seed: int | None = None) -> Tensor:
        self._refuse_compiled()
        wanted = default_dtype(int) if dtype is None else np.dtype(dtype)
        return self.create_on(device, lambda: _permutation(self._next_key(device, seed), n, wanted), wanted)

    def bernoulli(
        self, p: float, shape: tuple[int, ...], dtype: Any | None, device: Device, seed: int | None = None
    ) -> Tensor:
        self._refuse_compiled()
        wanted = np.dtype(bool if dtype is None else dtype)

        def draw() -> Tensor:
            return _bernoulli(self._next_key(device, seed), np.float64(p), shape, wanted)

        return self.create_on(device, draw, np.dtype(np.float64))

    def random_key(self, x: Tensor) -> tuple[str, Tensor] | None:
        if not jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
            return None
        return str(jax.random.key_impl(x)), jax.random.key_data(x)

    def from_random_key(self, data: Tensor, generator: str) -> Tensor:
        try:
            return jax.random.wrap_key_data(data, impl=generator)
        except (ValueError, TypeError) as error:
            msg = f"JAX cannot make a key of the generator {show(generator)} from {data.dtype} of shape {data.shape}"
            raise ConversionError(msg, "load the file with the version of JAX that wrote it") from error

    def _refuse_compiled(self) -> None:
        """Raise inside a compiled function, which would repeat the same random numbers."""
        if not trace_state_clean() and self.compiling():
            raise messages.tracing(
                self,
                "random",
                "pass a key in and use jax.random, because the compiled function would repeat the same values",
            )

    def _drawing_dtype(self, dtype: Any | None, kind: Any) -> np.dtype:
        """Return the dtype of random numbers, which must be of a kind, or raise inside a compiled function."""
        self._refuse_compiled()
        wanted: np.dtype = default_dtype(float) if dtype is None else np.dtype(dtype)
        if not jnp.issubdtype(wanted, kind):
            raise messages.not_a_float_dtype(wanted.name)
        return wanted

    def _next_key(self, device: Device, seed: int | None) -> np.ndarray:
        """Return the key of a draw: that of its seed, or the next one of the device."""
        if seed is not None:
            return np.array([seed >> 32, seed & 0xFFFFFFFF], np.uint32)
        with self._lock:
            count = self._draw_counts.get(device, 0)
            self._draw_counts[device] = count + 1
            entropy = (self._seed, KINDS.index(device.kind), device.index, count)
        return np.random.SeedSequence(entropy).generate_state(2, np.uint32)

    def seed(self, value: int) -> None:
        with self._lock:
            self._seed = value
            self._draw_counts.clear()
