"""Scopes on JAX, which set its default device, and the check whether JAX is tracing.

``jax.jit`` ignores ``jax.default_device`` inside a traced function, so a scope is refused there.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import jax
from jax._src import config, xla_bridge
from jax._src.core import trace_state_clean

from devshim.contract.backend import Backend
from devshim.devices.device import CPU
from devshim.errors import messages
from devshim_backends._jax.internals.widths import KEEPS_WIDTH, full_width
from devshim_backends._jax.random import JaxRandom
from devshim_backends._jax.tensors import is_compiling

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device


_NO_SCOPE: AbstractContextManager[object] = nullcontext()
_host: object = None
"""JAX's default platform, once it is known to be the CPU."""


def _default_is_host() -> bool:
    """Return True if JAX computes on the CPU by default."""
    global _host
    if config.default_device.value is not None:  # what `jax.config.jax_default_device` reads
        return False
    platform = xla_bridge.get_backend()  # the object that `jax.default_backend` names
    if platform is _host:
        return True
    if platform.platform != "cpu":
        return False
    _host = platform
    return True


class JaxScopes(JaxRandom, Backend):
    """The mixin for scopes."""

    def scope(self, device: Device) -> AbstractContextManager[object]:
        if not trace_state_clean() and is_compiling():
            raise self._tracing_error("on")
        if device is CPU and _default_is_host():
            return _NO_SCOPE  # JAX compiles each function again for another default device
        scope: AbstractContextManager[object] = jax.default_device(self.to_native(device))
        return scope

    def compiling(self) -> bool:
        return is_compiling()

    def at_full_width(self, fn: Callable[..., Any], xs: Sequence[Tensor]) -> Callable[..., Any]:
        width = full_width(xs)
        if width is None:
            return fn
        if not KEEPS_WIDTH and not jax.config.jax_enable_x64 and is_compiling():
            # Its numbers become 32-bit constants, which XLA then refuses to combine with 64-bit arrays.
            raise messages.tracing(self, "run", "set jax_enable_x64, or install JAX 0.8 or newer")

        def compute(*args: Any, **options: Any) -> Any:
            with width:
                return fn(*args, **options)

        return compute
