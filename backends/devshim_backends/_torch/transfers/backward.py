"""Gradients that flow back through an explicit copy: they are as explicit as the copy, so the guard allows them.

PyTorch's ``ToCopyBackward0`` copies a small tensor's gradient, in a thread of its engine. CUDA's warning about
that copy is repeated when the whole backward pass is done, and does not name the operator (2.10 to 2.13). So while a
guard is open, this module finds these nodes before a backward pass begins, and turns CUDA's mode off while one runs.
"""

from __future__ import annotations

import functools
from threading import Lock
from typing import TYPE_CHECKING, Any

import torch

from devshim.monitoring.instrumentation import is_suppressed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["passing"]

_COPIES = ("ToCopyBackward0", "CopyBackwards")
"""The autograd nodes of ``x.to(device)`` and ``y.copy_(x)``."""

_LOCK = Lock()
_running: list[_Pass] = []
"""The backward pass of each copy that is running now, in any thread."""
_before = 0
"""CUDA's mode before the first of these copies."""


def passing(original: Any, is_open: Callable[[], bool]) -> Any:
    """Return a wrapper of ``_engine_run_backward`` that lets the gradients of explicit copies pass unreported.

    Args:
        original: PyTorch's function.
        is_open: Returns True if a guard has set CUDA's mode. Before CUDA starts, no guard has, and reading the mode
            would start CUDA.
    """

    @functools.wraps(original)
    def run(outputs: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or is_suppressed() or not is_open():
            return original(outputs, *args, **kwargs)
        run_through = _Pass(is_open)
        handles = [handle for node in _copies(outputs) for handle in run_through.hooks(node)]
        try:
            return original(outputs, *args, **kwargs)
        finally:
            for handle in handles:
                handle.remove()
            run_through.end()

    return run


class _Pass:
    """One backward pass, which may run several copies at once."""

    def __init__(self, is_open: Callable[[], bool]) -> None:
        self._is_open = is_open

    def hooks(self, node: Any) -> tuple[Any, Any]:
        """Register hooks before and after a node."""
        return node.register_prehook(self._enter), node.register_hook(self._leave)

    def _enter(self, gradients: Any) -> None:
        global _before
        with _LOCK:
            if not _running:
                _before = torch.cuda.get_sync_debug_mode()
                if _before == 1:
                    torch.cuda.set_sync_debug_mode("default")
            _running.append(self)

    def _leave(self, *gradients: Any) -> None:
        with _LOCK:
            if self in _running:
                _running.remove(self)
                self._set_back()

    def end(self) -> None:
        """Account for the nodes that have failed, after which PyTorch calls no hook."""
        with _LOCK:
            while self in _running:
                _running.remove(self)
                self._set_back()

    def _set_back(self) -> None:
        if not _running and _before == 1 and torch.cuda.get_sync_debug_mode() == 0 and self._is_open():
            torch.cuda.set_sync_debug_mode("warn")


def _copies(outputs: Iterable[Any]) -> list[Any]:
    """Return the nodes of explicit copies between devices in the graph that computed the outputs."""
    first = [getattr(each, "grad_fn", None) or getattr(each, "node", None) for each in outputs]
    seen: dict[Any, None] = {}
    left = [node for node in first if node is not None]
    while left:
        node = left.pop()
        if node not in seen:
            seen[node] = None  # kept alive: for a node that was released, Python would make another object
            left.extend(following for following, _ in node.next_functions if following is not None)
    return [node for node in seen if type(node).__name__ in _COPIES]
