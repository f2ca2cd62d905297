"""JAX's default device for a block, and whether JAX is tracing.

Inside ``jax.jit`` a ``jax.default_device`` is ignored: there a scope is refused.

Before JAX 0.5 its scope is a generator.  One that is never left, as by `set_device` in a thread that ends, would be
closed by the garbage collector, in whatever thread that runs in, and set that thread's default device: `_Scope`
keeps it from being collected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax

from devshim.contract.backend import Backend
from devshim_backends._jax.random import JaxDraws
from devshim_backends._jax.tensors import is_compiling

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from devshim.devices.device import Device


_OPEN: set[_Scope] = set()


class _Scope:
    """``jax.default_device`` that changes nothing except in ``__enter__`` and ``__exit__``."""

    def __init__(self, native: Any) -> None:
        self._scope = jax.default_device(native)

    def __enter__(self) -> object:
        entered: object = self._scope.__enter__()
        _OPEN.add(self)
        return entered

    def __exit__(self, *failure: Any) -> None:
        _OPEN.discard(self)
        self._scope.__exit__(*failure)


class JaxScopes(JaxDraws, Backend):
    """The room "scopes" of the JAX adapter."""

    def scope(self, device: Device) -> AbstractContextManager[object]:
        if self.compiling():
            raise self._untraceable("on")
        return _Scope(self.to_native(device))

    def compiling(self) -> bool:
        return is_compiling()
