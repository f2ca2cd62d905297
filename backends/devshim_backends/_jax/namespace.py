"""The array-API namespace of JAX: ``jax.numpy``, or ``jax.experimental.array_api`` before it had all names.

Without ``jax_enable_x64``, functions of 64-bit arrays give 32-bit results, or fail (``argmax``, 0.10), so devshim calls
them with it. JAX also converts NumPy's arrays to 32 bits then, and ``2**40`` becomes 0; a NumPy number is like a Python
number, unless 32 bits cannot represent it. Some functions ignore their argument's device, such as ``isfinite`` of
integers (0.10): it is the default one meanwhile.
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
from devshim.contract.namespaces import ABOUT_DTYPES, native_functions, requiring_axis
from devshim_backends._array_api.elementwise import bound_in_range
from devshim_backends._array_api.following import follow_tensors
from devshim_backends._jax.internals.widths import NARROW, enable_x64, is_wide

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class JaxNamespace(Backend):
    """The mixin for array-API namespaces."""

    def array_api(self) -> Mapping[str, Any]:
        full = hasattr(jnp, "__array_api_version__")
        found = dict(native_functions(jnp if full else import_module("jax.experimental.array_api")))
        found |= {name: _ask_both_parts(found[name]) for name in ("all", "any")}
        found |= {name: _at_any_diagonal(found[name]) for name in ("tril", "triu")}
        found["take"] = requiring_axis(found["take"])
        found["clip"] = _with_bounds_in_range(found["clip"])
        return {
            name: fn
            if name in ABOUT_DTYPES - {"result_type"}
            else _at_full_width(self, fn, follow_tensors(self, name, fn))
            for name, fn in found.items()
        }


def _ask_both_parts(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``all`` or ``any``; JAX's reads only the real part of complex numbers (0.10)."""

    @wraps(fn)
    def ask(x: Any, /, *args: Any, **options: Any) -> Any:
        return fn(jnp.not_equal(x, 0) if jnp.iscomplexobj(x) else x, *args, **options)

    return ask


def _at_any_diagonal(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``tril`` or ``triu``; JAX's overflows for a diagonal at 2**31 (0.10)."""

    @wraps(fn)
    def select(x: Any, /, *, k: int = 0) -> Any:
        if k and len(x.shape) > 1:
            k = max(-x.shape[-2], min(x.shape[-1], k))
        return fn(x, k=k)

    return select


def _with_bounds_in_range(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``clip`` for Python bounds outside the range of an integer dtype, of which JAX drops bits (0.10)."""

    @wraps(fn)
    def clip(x: Any, /, min: Any = None, max: Any = None) -> Any:
        kind = getattr(x, "dtype", None)
        if (type(min) is int or type(max) is int) and kind is not None and jnp.issubdtype(kind, jnp.integer):
            min, max = (bound_in_range(b, jnp.iinfo(kind)) if type(b) is int else b for b in (min, max))
        return fn(x, min, max)

    return clip


def _at_full_width(backend: Backend, native: Callable[..., Any], followed: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that computes with 64 bits if one of its arrays, or a dtype that it is given, has 64 bits.

    Args:
        backend: The adapter.
        native: The function of JAX, called directly if the host is the only device.
        followed: The function that computes on the device of its arguments.
    """

    @wraps(native)
    def compute(*args: Any, **options: Any) -> Any:
        for value in (*args, *options.values()) if options else args:
            kind = type(value)
            if kind is ArrayImpl:
                wide = value.dtype.num not in _NARROW and is_wide(value.dtype)
            elif kind in _PLAIN:
                continue
            else:
                wide = _has_64_bits(value)
            if wide and not jax.config.jax_enable_x64:
                with enable_x64(True):
                    return followed(*args, **options)
        return (native if backend.has_only_host() else followed)(*args, **options)

    return compute


_PLAIN = frozenset({bool, int, float, complex, str, type(None)})
_WIDE_TYPES = frozenset({np.int64, np.uint64, np.float64, np.complex128})
"""The dtypes of 64 bits as classes; those of ``jax.numpy`` are equal to them."""
_NARROW = frozenset(dtype.num for dtype in NARROW)
"""NumPy's numbers of these dtypes; a number takes less time to look up than a dtype."""


def _has_64_bits(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_has_64_bits, value))
    if isinstance(value, (np.dtype, np.ndarray)):
        return is_wide(getattr(value, "dtype", value))
    if isinstance(value, np.generic):
        return is_wide(value.dtype) and not _fits(value)
    if isinstance(value, type):
        return value in _WIDE_TYPES
    # JAX answers `isinstance` of its arrays in Python, so the types of its tracers are kept.
    kind = type(value)
    is_tracer = _TRACERS.get(kind)
    if is_tracer is None:
        is_tracer = _TRACERS[kind] = issubclass(kind, jax.core.Tracer)
    return (is_tracer or isinstance(value, jax.Array)) and is_wide(value.dtype)


def _fits(value: Any) -> bool:
    """Return True if 32 bits represent a NumPy number of 64 bits, except for rounding."""
    if value.dtype.kind in "iu":
        return bool(-(2**31) <= value < 2**31)
    return bool(not np.isfinite(value) or max(abs(value.real), abs(value.imag)) <= np.finfo(np.float32).max)


_TRACERS: dict[type, bool] = {}
"""Type of an argument -> True if it is a JAX tracer; filled on first use."""
