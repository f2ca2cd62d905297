"""The array-API namespace of JAX: ``jax.numpy``, or ``jax.experimental.array_api`` before it had all names.

Without ``jax_enable_x64``, functions of 64-bit arrays give 32-bit results, or fail (``argmax``, 0.10), so devshim calls
them with it. Some functions ignore their argument's device, such as ``isfinite`` of integers (0.10): it is the default
one meanwhile.
"""

from __future__ import annotations

from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src.array import ArrayImpl

from devshim.contract.backend import Backend
from devshim.contract.namespaces import ABOUT_DTYPES, native_functions
from devshim_backends._array_api.following import following
from devshim_backends._jax.widths import enable_x64, is_wide

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class JaxNamespace(Backend):
    """The mixin for array-API namespaces."""

    def array_api(self) -> Mapping[str, Any]:
        full = hasattr(jnp, "__array_api_version__")
        found = native_functions(jnp if full else import_module("jax.experimental.array_api"))
        return {
            name: fn if name in ABOUT_DTYPES - {"result_type"} else _at_full_width(following(self, name, fn))
            for name, fn in found.items()
        }


def _at_full_width(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that computes with 64 bits if one of its arrays, or a dtype that it is given, has 64 bits."""

    @wraps(fn)
    def compute(*args: Any, **options: Any) -> Any:
        for value in (*args, *options.values()) if options else args:
            if _has_64_bits(value) and not jax.config.jax_enable_x64:
                with enable_x64(True):
                    return fn(*args, **options)
        return fn(*args, **options)

    return compute


def _has_64_bits(value: Any) -> bool:
    # JAX answers `isinstance` of its arrays in Python, so their usual type is compared first.
    if type(value) is ArrayImpl or isinstance(value, (jax.Array, np.dtype)):
        return is_wide(value if isinstance(value, np.dtype) else value.dtype)
    return isinstance(value, (list, tuple)) and any(map(_has_64_bits, value))
