"""Operators of PyTorch that native names replace when a program first needs them."""

from __future__ import annotations

import warnings
from threading import Lock
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["ReplacedOperators"]


class ReplacedOperators:
    """Kernels that replace those of some operators for one dispatch key, from `install` to `uninstall`.

    Args:
        namespace: The namespace of the operators, such as ``"aten"``.
        key: The name of the dispatch key, such as ``"CPU"``.
    """

    def __init__(self, namespace: str, key: str) -> None:
        self._namespace, self._key = namespace, key
        self._lock = Lock()
        self._library: Any = None

    def install(self, kernels: Callable[[], Mapping[str, Callable[..., Any]]]) -> None:
        """Replace the operators, once: ``kernels`` returns the kernel of each name."""
        with self._lock:
            if self._library is not None:
                return
            self._library = library = torch.library.Library(self._namespace, "IMPL")
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "(?s).*overrid", UserWarning)
                for name, kernel in kernels().items():
                    library.impl(name, kernel, self._key, allow_override=True)

    def uninstall(self) -> None:
        """Restore the operators of PyTorch."""
        with self._lock:
            library, self._library = self._library, None
            if library is not None:
                library._destroy()
