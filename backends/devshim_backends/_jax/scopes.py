"""Scopes on JAX, which set its default device, and the check whether JAX is tracing.

``jax.jit`` ignores ``jax.default_device`` inside a traced function, so a scope is refused there.

Before JAX 0.5, the context of ``jax.default_device`` is a generator. If it is never exited, as by `set_device` in a
thread that ends, the garbage collector would close it in whatever thread it runs, and would set that thread's default
device. `_Scope` keeps the generator from being collected.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import jax
from jax._src import xla_bridge
from jax._src.core import trace_state_clean

from devshim.contract.backend import Backend
from devshim.devices.device import CPU
from devshim_backends._jax.random import JaxRandom
from devshim_backends._jax.tensors import is_compiling
from devshim_backends._jax.widths import full_width

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device


_OPEN: set[_Scope] = set()


class _Scope:
    """A ``jax.default_device`` context that takes effect only in ``__enter__`` and ``__exit__``."""

    def __init__(self, native: Any) -> None:
        self._scope = jax.default_device(native)

    def __enter__(self) -> object:
        entered: object = self._scope.__enter__()
        _OPEN.add(self)
        return entered

    def __exit__(self, *failure: Any) -> None:
        _OPEN.discard(self)
        self._scope.__exit__(*failure)


_NO_SCOPE: AbstractContextManager[object] = nullcontext()
_host: object = None
"""JAX's default platform, once it is known to be the CPU."""


def _default_is_host() -> bool:
    """Return True if JAX computes on the CPU by default."""
    global _host
    if jax.config.jax_default_device is not None:
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
        return _Scope(self.to_native(device))

    def compiling(self) -> bool:
        return is_compiling()

    def at_full_width(self, fn: Callable[..., Any], xs: Sequence[Tensor]) -> Callable[..., Any]:
        width = full_width(xs)
        if width is None:
            return fn

        def compute(*args: Any, **options: Any) -> Any:
            with width:
                return fn(*args, **options)

        return compute
