"""The array-API namespace of JAX: ``jax.numpy``, or ``jax.experimental.array_api`` before it had all names.

Some functions ignore their argument's device, such as ``isfinite`` of integers (0.10): it is the default one meanwhile.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp

from devshim.contract.backend import Backend
from devshim.contract.namespaces import ABOUT_DTYPES, native_functions
from devshim_backends._array_api.following import following

if TYPE_CHECKING:
    from collections.abc import Mapping


class JaxNamespace(Backend):
    """The mixin for array-API namespaces."""

    def array_api(self) -> Mapping[str, Any]:
        full = hasattr(jnp, "__array_api_version__")
        found = native_functions(jnp if full else import_module("jax.experimental.array_api"))
        return {name: fn if name in ABOUT_DTYPES else following(self, name, fn) for name, fn in found.items()}
