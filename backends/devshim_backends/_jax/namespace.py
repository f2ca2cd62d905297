"""The array-API namespace of JAX: ``jax.numpy``, or ``jax.experimental.array_api`` before it had all names."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp

from devshim.contract.backend import Backend
from devshim.contract.namespaces import native_functions

if TYPE_CHECKING:
    from collections.abc import Mapping


class JaxNamespace(Backend):
    """The mixin for array-API namespaces."""

    def array_api(self) -> Mapping[str, Any]:
        full = hasattr(jnp, "__array_api_version__")
        return native_functions(jnp if full else import_module("jax.experimental.array_api"))
