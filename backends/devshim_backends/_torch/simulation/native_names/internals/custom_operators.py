"""Kernels for CUDA that a program registers in Python: they also run for tensors on simulated GPUs.

The tensors have the key PrivateUse1, so each kernel is registered there too, from the call until its library ends or
native names are switched off. A kernel that is older than native names is registered there when they are switched on.
Of a library with compiled kernels for CUDA, the kernels for the CPU are registered there instead.
"""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.library import Library

from devshim.simulation.patching import Patches
from devshim_backends._torch.simulation.native_names.internals.compiled_libraries import NAMESPACES, on_host

_KEYS = {
    "CUDA": "PrivateUse1",
    "AutogradCUDA": "AutogradPrivateUse1",
    "SparseCUDA": "SparsePrivateUse1",
    "SparseCsrCUDA": "SparseCsrPrivateUse1",
}
"""Dispatch key of CUDA -> the key of simulated GPUs."""
_COPIES: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
"""A program's library -> the library with the same kernels for simulated GPUs."""


_EARLIER: list[Any] = []
"""The libraries with the kernels that are older than native names."""
_OWN = ("_", "aten", "c10d")
"""Namespaces in which devshim itself registers kernels for CUDA, and PyTorch's own kernels need no copy."""


def _copy_earlier() -> None:
    """Register the kernels that the program has registered before."""
    libraries: dict[str, Any] = {}
    for registered in sorted(torch.library._impls):
        namespace, name, dispatch_key = registered.split("/")
        key = _key_for(namespace, dispatch_key)
        if key is None or namespace in _OWN:
            continue
        if namespace not in libraries:
            libraries[namespace] = Library(namespace, "IMPL")
            _EARLIER.append(libraries[namespace])
        full, is_for_cpu = f"{namespace}::{name}", dispatch_key == "CPU"
        kernel = on_host(full) if is_for_cpu else torch.library.get_kernel(full, dispatch_key).call_boxed
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "(?s).*overrid", UserWarning)
            libraries[namespace].impl(name, kernel, key, with_keyset=not is_for_cpu)


def _key_for(namespace: str, dispatch_key: str) -> str | None:
    """Return the key of simulated GPUs for a kernel that a program registers, or None if they do not run it."""
    if namespace in NAMESPACES:
        return "PrivateUse1" if dispatch_key == "CPU" else None
    return _KEYS.get(dispatch_key)


def _impl(real: Callable[..., None]) -> Callable[..., None]:
    """Return a replacement for ``Library.impl``, which ``torch.library.impl`` and ``custom_op`` also call."""

    @functools.wraps(real)
    def impl(self: Any, op_name: Any, fn: Any, dispatch_key: str = "", **options: Any) -> None:
        real(self, op_name, fn, dispatch_key, **options)
        given = dispatch_key or self.dispatch_key
        key = _key_for(self.ns, given)
        if key is None:
            return
        if given == "CPU":
            name = op_name if isinstance(op_name, str) else op_name.name()
            fn, options = on_host(name if "::" in name else f"{self.ns}::{name}"), {}
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
    _copy_earlier()
    patches.replace(Library, "impl", _impl(Library.impl))
    patches.replace(Library, "_destroy", _destroy(Library._destroy))


def uninstall() -> None:
    """Remove the kernels for simulated GPUs."""
    while _COPIES:
        _COPIES.popitem()[1]._destroy()
    while _EARLIER:
        _EARLIER.pop()._destroy()
