"""JAX's default device for a block, and whether JAX is tracing.

Inside ``jax.jit`` a ``jax.default_device`` is ignored: there a scope is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax

from devshim.backend import Backend
from devshim_backends._jax.draws import JaxDraws
from devshim_backends._jax.tensors import is_compiling

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from devshim.device import Device


class JaxScopes(JaxDraws, Backend):
    """The room "scopes" of the JAX adapter."""

    def scope(self, device: Device) -> AbstractContextManager[object]:
        if self.compiling():
            raise self._untraceable("on")
        scope: AbstractContextManager[object] = jax.default_device(self.to_native(device))
        return scope

    def compiling(self) -> bool:
        return is_compiling()
