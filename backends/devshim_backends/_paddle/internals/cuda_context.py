"""Restoring CUDA's current card, per thread, after a call of devshim.

Paddle sets the current card before every operator and copy (``phi::backends::gpu::SetDeviceId``, 3.0 to 3.3) and does
not restore it, which affects PyTorch's ``device="cuda"``, CuPy and everything else that uses CUDA in that thread. This
module restores the driver's context. Setting the card by number would create a context, which takes about half a
gigabyte, on a card that nothing has used. So in a thread without a context the card remains the one that Paddle chose.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import contextmanager
from functools import cache, wraps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CALLS = (
    *("copy_to", "to_numpy", "from_numpy", "cast", "synchronize", "empty_cache"),
    *("asarray", "empty", "full", "zeros", "ones", "arange", "linspace", "eye", "uniform", "normal"),
    *("narrow", "concatenate", "stack_tensors", "combine", "detached_copy", "stack_scalars", "assign"),
)
"""The adapter's methods in which Paddle uses a card."""


def restore_after_calls(cls: type) -> None:
    """Make the methods of an adapter leave CUDA's current card unchanged."""
    for name in CALLS:
        setattr(cls, name, _restore_after(getattr(cls, name)))


@cache
def load_driver() -> Any:
    """Return the CUDA driver that Paddle has loaded."""
    return ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)


def get_context() -> int | None:
    """Return the address of this thread's CUDA context, which identifies its current card; None if it has none."""
    found = ctypes.c_void_p()
    try:
        return None if load_driver().cuCtxGetCurrent(ctypes.byref(found)) else found.value
    except (OSError, AttributeError):  # no driver is loaded: this is a build for ROCm, or Windows
        return None


def restore(before: int | None) -> None:
    """Make a context current again unless it already is; None means that the thread had no context."""
    if before is not None and get_context() != before:
        load_driver().cuCtxSetCurrent(ctypes.c_void_p(before))


@contextmanager
def preserve() -> Iterator[None]:
    """Leave CUDA's current card unchanged in this thread."""
    before = get_context()
    try:
        yield
    finally:
        restore(before)


def _restore_after(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        with preserve():
            return method(*args, **kwargs)

    return call
