"""CUDA's current card, kept for each thread as it was before a call of devshim's.

Paddle sets it before every operator and copy (``phi::backends::gpu::SetDeviceId``, 2.6 to 3.3) and leaves it there, for
PyTorch's ``device="cuda"``, CuPy and all of CUDA in that thread.  The driver's context is what is put back: to set the
card by number would make a context, of about half a gigabyte, on a card that nothing has used.  So in a thread without
a context yet the card stays the one that Paddle has chosen.
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
    *("narrow", "concatenate", "stack_tensors", "combine", "snapshot", "stack", "assign"),
)
"""The adapter's methods in which Paddle works on a card."""


def keep(cls: type) -> None:
    """Have the methods of an adapter leave CUDA's current card as it was."""
    for name in CALLS:
        setattr(cls, name, _keeping(getattr(cls, name)))


@cache
def driver() -> Any:
    """Return the CUDA driver that Paddle has loaded."""
    return ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)


def context() -> int | None:
    """Return the address of this thread's CUDA context, which says which card is the current one; None without one."""
    found = ctypes.c_void_p()
    try:
        return None if driver().cuCtxGetCurrent(ctypes.byref(found)) else found.value
    except (OSError, AttributeError):  # no driver is loaded: the build is for ROCm, the system Windows
        return None


def put_back(before: int | None) -> None:
    """Make a context current again, unless it is; None is a thread that had none."""
    if before is not None and context() != before:
        driver().cuCtxSetCurrent(ctypes.c_void_p(before))


@contextmanager
def kept() -> Iterator[None]:
    """Leave CUDA's current card as it was, in this thread."""
    before = context()
    try:
        yield
    finally:
        put_back(before)


def _keeping(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        with kept():
            return method(*args, **kwargs)

    return call
