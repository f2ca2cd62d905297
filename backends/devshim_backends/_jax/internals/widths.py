"""Contexts in which JAX computes with 64 bits.

Without ``jax_enable_x64``, JAX creates no 64-bit arrays, and its operators give 32-bit results for 64-bit arrays, or
fail (``argmax`` of float64, 0.10). The setting that only affects explicit dtypes (``jax_explicit_x64_dtypes``, 0.10) is
no help: with it, ``x * 0.1`` rounds the number to 32 bits first. So these contexts set ``jax_enable_x64``, in this
thread only.
"""

from __future__ import annotations

from _thread import _local
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

KEEPS_WIDTH = hasattr(jax, "enable_x64")
"""True if a compiled function keeps the width of the numbers that it was traced with: from JAX 0.8 on."""

if KEEPS_WIDTH:
    enable_x64: Any = jax.enable_x64
else:  # before JAX 0.8, which deprecates this
    from jax import experimental

    enable_x64 = experimental.enable_x64


NARROW = frozenset({*map(np.dtype, "?bhiBHIefF"), np.dtype(jnp.bfloat16)})
"""The usual dtypes of arrays that are the same with and without ``jax_enable_x64``; `is_wide` knows all others."""


class _Own(_local):
    """True in a thread in which `full_width` has set ``jax_enable_x64``, and the program has not."""

    inside = False


_OWN = _Own()


def is_wide(dtype: Any) -> bool:
    """Return True for a dtype whose numbers have 64 bits, or two times 64 bits; those of random keys have none."""
    kind = getattr(dtype, "kind", "V")
    return kind in "iufc" and bool(dtype.itemsize == (16 if kind == "c" else 8))


def wide(dtype: Any) -> AbstractContextManager[object]:
    """Return a context in which values of a dtype keep their width, in this thread only."""
    return enable_x64(True) if is_wide(dtype) else nullcontext()


def wide_for_all(xs: Iterable[Any]) -> AbstractContextManager[object]:
    """Return `wide` for several arrays: between a GPU and the host, JAX uses NumPy and truncates 64 bits (0.10)."""
    return enable_x64(True) if any(is_wide(x.dtype) for x in xs) else nullcontext()


def full_width(xs: Sequence[Any]) -> AbstractContextManager[object] | None:
    """Return a context for a function of the program that computes with these arrays; None if none have 64 bits.

    If there are floats or complex numbers among them, these decide: together with float32 weights, int64 labels must
    not turn the arrays that the function creates into float64.
    """
    for x in xs:
        if x.dtype not in NARROW and is_wide(x.dtype):  # the first question takes a quarter of the time
            break
    else:
        return None
    dtypes = [x.dtype for x in xs]
    floats = [dtype for dtype in dtypes if jnp.issubdtype(dtype, jnp.inexact)]
    return _enter() if not floats or any(map(is_wide, floats)) else None


@contextmanager
def _enter() -> Iterator[None]:
    before = _OWN.inside
    inside = before or not jax.config.jax_enable_x64
    with enable_x64(True):
        try:
            _OWN.inside = inside
            yield
        finally:
            _OWN.inside = before


def default_dtype(kind: type) -> np.dtype:
    """Return JAX's default dtype for numbers of a Python type; `full_width` does not change it."""
    with enable_x64(False) if _OWN.inside else nullcontext():
        dtype: np.dtype = np.dtype(jnp.result_type(kind))
    return dtype
