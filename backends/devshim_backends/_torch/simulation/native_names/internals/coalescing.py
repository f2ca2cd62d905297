"""Several calls of ``torch.distributed`` as one, which NCCL can do: gloo runs each of them, and their work is one.

PyTorch begins and ends such a group of calls with two methods of the process group.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from typing import Any

from torch import distributed

from devshim.simulation.patching import Patches

__all__ = ["install", "record"]


class _Open(threading.local):
    """The groups of calls that this thread has begun: name of the process group -> the work of its calls."""

    def __init__(self) -> None:
        self.works: dict[str, list[Any]] = {}


_OPEN = _Open()


def record(result: Any) -> None:
    """Record the work in the result of a collective call, if the call is one of several."""
    if _OPEN.works:
        latest = next(reversed(_OPEN.works.values()))
        latest.append(distributed.Work.unbox(result[-1] if isinstance(result, tuple) else result))


@cache
def _make_class() -> type:
    """Return the class of the work of several calls; PyTorch may lack ``torch.distributed``."""

    class Together(distributed.Work):  # type: ignore[misc]  # PyTorch is Any to the type checker
        def __init__(self, works: list[Any]) -> None:
            super().__init__()
            self._works = works

        def wait(self, timeout: timedelta = timedelta(0)) -> bool:
            for each in self._works:
                each.wait(timeout)
            return True

        def is_completed(self) -> bool:
            return all(each.is_completed() for each in self._works)

    return Together


def _start(real: Callable[..., None], uses_nccl: Callable[[Any], bool]) -> Callable[..., None]:
    """Return a replacement for ``ProcessGroup._start_coalescing``."""

    def start(self: Any, device: Any) -> None:
        if not uses_nccl(self):
            real(self, device)
            return
        _OPEN.works.pop(self.group_name, None)  # of a group of calls that an error ended
        _OPEN.works[self.group_name] = []

    return start


def _end(real: Callable[..., Any], uses_nccl: Callable[[Any], bool]) -> Callable[..., Any]:
    """Return a replacement for ``ProcessGroup._end_coalescing``."""

    def end(self: Any, device: Any) -> Any:
        return _make_class()(_OPEN.works.pop(self.group_name)) if uses_nccl(self) else real(self, device)

    return end


def install(patches: Patches, group: type, uses_nccl: Callable[[Any], bool]) -> None:
    """Install the replacements in the class of process groups."""
    patches.replace(group, "_start_coalescing", _start(group._start_coalescing, uses_nccl))  # type: ignore[attr-defined]
    patches.replace(group, "_end_coalescing", _end(group._end_coalescing, uses_nccl))  # type: ignore[attr-defined]
