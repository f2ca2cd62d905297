"""Who watches copies: ledgers and guards, and whether a copy is devshim's own.

`devshim._transfer` asks here, by way of its ``LEDGER``, while anybody watches anywhere in the process; what a
framework does inside one of devshim's own copies is that copy, and nothing hidden.
"""

from __future__ import annotations

import sys
import threading
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from devshim import _registry, _transfer

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.backend import Backend
    from devshim.device import Device

    Listener = Callable[[Backend, Device, Device, int, float, int, str, float], None]
    """Told of each copy: backend, source, target, bytes, seconds, tensors, site, start."""

LISTENING: ContextVar[tuple[tuple[Listener, bool], ...]] = ContextVar("devshim_listening", default=())
"""Who of this context listens, and whether the devices shall be waited for."""
GUARDED: ContextVar[Any] = ContextVar("devshim_guarded", default=None)
"""The innermost guard of this context (`devshim.guards`)."""

_COUNTING = threading.Lock()
_INSIDE = threading.local()
_open = 0
_NOT_THEIRS = {"devshim", "devshim_backends", "optree", "keras", "contextlib", *_registry.ROOTS}
"""Root packages between a line of the user's and a copy: devshim, the frameworks, and what they call on the way."""


def watch(step: int) -> None:
    """Have copies watched while anybody does, anywhere in the process."""
    global _open
    with _COUNTING:
        _open += step
        _transfer.LEDGER = _recording if _open else None


def inside() -> bool:
    """Whether this thread is in the middle of a copy of devshim's own."""
    return getattr(_INSIDE, "copying", False)


def site() -> str:
    """Return the nearest line that is neither devshim's nor a framework's, as ``file:line``."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_on_the_way(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _is_on_the_way(module: str) -> bool:
    """Whether a module's lines are nobody's; the conformance kit is a user."""
    return module.partition(".")[0] in _NOT_THEIRS and not module.startswith("devshim.testing.")


def _recording(backend: Backend, source: Device, target: Device, nbytes: int | None, tensors: int) -> Recording | None:
    """What is entered around a copy (``nbytes`` None: around making a tensor); None where nobody here watches."""
    listening = LISTENING.get()
    if inside() or not (listening or GUARDED.get() is not None):
        return None
    return Recording(listening if nbytes is not None else (), backend, source, target, nbytes, tensors)


class Recording:
    """One copy that is being made; one that fails is not recorded."""

    __slots__ = ("_about", "_backend", "_listening", "_site", "_start", "_sync")

    def __init__(self, listening: Any, backend: Backend, *about: Any) -> None:
        self._listening, self._backend, self._about = listening, backend, about
        self._sync = any(wait for _, wait in listening)

    def __enter__(self) -> None:
        self._site = site() if self._listening else ""
        if self._sync:
            self._wait()
        _INSIDE.copying = True
        self._start = time.perf_counter()

    def carried(self, nbytes: int) -> None:
        """Say how much was copied, where that is known of the result only."""
        self._about = (*self._about[:2], nbytes, self._about[3])

    def __exit__(self, failed: object, *rest: object) -> None:
        _INSIDE.copying = False
        if failed is not None:
            return
        if self._sync:
            self._wait()
        seconds = time.perf_counter() - self._start
        source, target, nbytes, tensors = self._about
        for tell, _ in self._listening:
            tell(self._backend, source, target, nbytes, seconds, tensors, self._site, self._start)

    def _wait(self) -> None:
        for device in set(self._about[:2]):
            if device.kind != "cpu":
                self._backend.synchronize(device)
