"""Kernels for CUDA that a program registers in Python: they also run for tensors on simulated GPUs.

The tensors have the key PrivateUse1, so each kernel is registered there too, from the call until its library ends or
native names are switched off. A kernel that was registered before native names is not known here.
"""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Callable
from typing import Any

from torch.library import Library

from devshim.simulation.patching import Patches

_KEYS = {
    "CUDA": "PrivateUse1",
    "AutogradCUDA": "AutogradPrivateUse1",
    "SparseCUDA": "SparsePrivateUse1",
    "SparseCsrCUDA": "SparseCsrPrivateUse1",
}
"""Dispatch key of CUDA -> the key of simulated GPUs."""
_COPIES: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
"""A program's library -> the library with the same kernels for simulated GPUs."""


def _impl(real: Callable[..., None]) -> Callable[..., None]:
    """Return a replacement for ``Library.impl``, which ``torch.library.impl`` and ``custom_op`` also call."""

    @functools.wraps(real)
    def impl(self: Any, op_name: Any, fn: Any, dispatch_key: str = "", **options: Any) -> None:
        real(self, op_name, fn, dispatch_key, **options)
        key = _KEYS.get(dispatch_key or self.dispatch_key)
        if key is None:
            return
        copied = _COPIES.get(self)
        if copied is None:
            copied = _COPIES.setdefault(self, Library(self.ns, "IMPL"))  # it ends with the library of the program
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "(?s).*overrid", UserWarning)
            real(copied, op_name, fn, key, **options)

    return impl


def _destroy(real: Callable[..., None]) -> Callable[..., None]:
    """Return a replacement for ``Library._destroy``."""

    @functools.wraps(real)
    def destroy(self: Any) -> None:
        copied = _COPIES.pop(self, None)
        if copied is not None:
            real(copied)
        real(self)

    return destroy


def install(patches: Patches) -> None:
    """Install the replacements."""
    patches.replace(Library, "impl", _impl(Library.impl))
    patches.replace(Library, "_destroy", _destroy(Library._destroy))


def uninstall() -> None:
    """Remove the kernels for simulated GPUs."""
    while _COPIES:
        _COPIES.popitem()[1]._destroy()
