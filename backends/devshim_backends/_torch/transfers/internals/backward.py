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
from devshim_backends._torch.tracing import compiles_here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["allow_gradients_of_copies"]

_COPIES = ("ToCopyBackward0", "CopyBackwards")
"""The autograd nodes of ``x.to(device)`` and ``y.copy_(x)``."""

_LOCK = Lock()
_running_copies: list[_BackwardPass] = []
"""The backward pass of each gradient copy that is running now, in any thread."""
_mode_before = 0
"""CUDA's mode before the first of these copies."""


def allow_gradients_of_copies(original: Any, is_open: Callable[[], bool]) -> Any:
    """Return a wrapper of ``_engine_run_backward`` that lets the gradients of explicit copies pass unreported.

    Args:
        original: PyTorch's function.
        is_open: Returns True if a guard has set CUDA's mode. Before CUDA starts, no guard has, and reading the mode
            would start CUDA.
    """

    @functools.wraps(original)
    def run(outputs: Any, *args: Any, **kwargs: Any) -> Any:
        if compiles_here() or is_suppressed() or not is_open():
            return original(outputs, *args, **kwargs)
        backward_pass = _BackwardPass(is_open)
        handles = [handle for node in _copy_nodes(outputs) for handle in backward_pass.register_hooks(node)]
        try:
            return original(outputs, *args, **kwargs)
        finally:
            for handle in handles:
                handle.remove()
            backward_pass.end()

    return run


class _BackwardPass:
    """One backward pass, which may run several copies at the same time."""

    def __init__(self, is_open: Callable[[], bool]) -> None:
        self._is_open = is_open

    def register_hooks(self, node: Any) -> tuple[Any, Any]:
        """Register hooks before and after a node."""
        return node.register_prehook(self._enter), node.register_hook(self._leave)

    def _enter(self, gradients: Any) -> None:
        global _mode_before
        with _LOCK:
            if not _running_copies:
                _mode_before = torch.cuda.get_sync_debug_mode()
                if _mode_before == 1:
                    torch.cuda.set_sync_debug_mode("default")
            _running_copies.append(self)

    def _leave(self, *gradients: Any) -> None:
        with _LOCK:
            self._remove()

    def end(self) -> None:
        """Account for the nodes that have failed, after which PyTorch calls no hook."""
        with _LOCK:
            while self in _running_copies:
                self._remove()

    def _remove(self) -> None:
        """Remove one copy of this pass, if one is running, and restore CUDA's mode after the last of all passes."""
        if self not in _running_copies:
            return
        _running_copies.remove(self)
        if not _running_copies and _mode_before == 1 and torch.cuda.get_sync_debug_mode() == 0 and self._is_open():
            torch.cuda.set_sync_debug_mode("warn")


def _copy_nodes(outputs: Iterable[Any]) -> list[Any]:
    """Return the nodes of explicit copies between devices in the graph that computed the outputs."""
    roots = [getattr(each, "grad_fn", None) or getattr(each, "node", None) for each in outputs]
    seen: dict[Any, None] = {}
    pending = [node for node in roots if node is not None]
    while pending:
        node = pending.pop()
        if node not in seen:
            seen[node] = None  # kept alive: for a node that was released, Python would make another object
            pending.extend(following for following, _ in node.next_functions if following is not None)
    return [node for node in seen if type(node).__name__ in _COPIES]
