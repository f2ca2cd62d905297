"""Who watches copies: ledgers and guards, and whether a copy is devshim's own.

`devshim.transfers.engine` asks here, by way of its ``LEDGER``, while anybody watches anywhere in the process; what a
framework does inside one of devshim's own copies is that copy, and nothing hidden.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from devshim.registry import registry
from devshim.transfers import engine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from devshim.contract.backend import Backend
    from devshim.devices.device import Device

    Listener = Callable[[Backend, Device, Device, int, float, int, str, float], None]
    """Told of each copy: backend, source, target, bytes, seconds, tensors, site, start."""

LISTENING: ContextVar[tuple[Block, ...]] = ContextVar("devshim_listening", default=())
"""Who of this context listens, and whether the devices shall be waited for."""
GUARDED: ContextVar[tuple[Block, ...]] = ContextVar("devshim_guarded", default=())
"""The guards of this context (`devshim.monitoring.guard`), the innermost last."""
CALLER: ContextVar[FrameType | None] = ContextVar("devshim_caller", default=None)
"""The user's frame that waits for what a thread of `devshim.parallel` does."""

_COUNTING = threading.Lock()
_INSIDE = threading.local()
_open = 0
_OURS = {"devshim", "devshim_backends"}
_USERS = ("devshim.testing.", "devshim.certify.")
"""Packages of ours that use devshim as a user's program does."""
_NOT_THEIRS = {*_OURS, "optree", "keras", "tf_keras", *registry.ROOTS}
"""Root packages between a line of the user's and a copy: devshim, the frameworks, and what they call on the way."""
_PYTHONS = (os.path.dirname(os.__file__) + os.sep, "<frozen ")
"""Where files of Python's own library are: logging formats what it is given, statistics adds it up."""
_MADE = "<eval_with_key>"
"""What files are called that are none, of functions that torch.fx has written: compiled ones."""


class Block:
    """A ``with`` block that watches, as the contexts keep it in which it was opened.

    A task has a copy of the context it was started in, and a generator may be closed in another than it was opened in:
    so a block can be over that still stands in a context.
    """

    __slots__ = ("open", "what")

    def __init__(self, what: Any) -> None:
        self.what: Any = what
        self.open: bool = True


def enter(contexts: ContextVar[tuple[Block, ...]], what: Any, opened: list[Block]) -> None:
    """Open a block in this context.

    Args:
        contexts: `LISTENING` or `GUARDED`.
        what: Who watches.
        opened: The blocks that the same object has open, of which this becomes one.
    """
    block = Block(what)
    opened.append(block)
    contexts.set((*(each for each in contexts.get() if each.open), block))
    _watch(1)


def leave(contexts: ContextVar[tuple[Block, ...]], opened: list[Block]) -> None:
    """Close the innermost of an object's blocks in this context; in a context that has none of them, the last."""
    block = next((each for each in reversed(contexts.get()) if each in opened), opened[-1])
    opened.remove(block)
    block.open = False
    contexts.set(tuple(each for each in contexts.get() if each.open))
    _watch(-1)


def _listening() -> tuple[tuple[Listener, bool], ...]:
    """Who listens here, each once, however often it is entered."""
    return tuple(dict.fromkeys(block.what for block in LISTENING.get() if block.open))


def _watch(step: int) -> None:
    """Have copies watched while anybody does, anywhere in the process."""
    global _open
    with _COUNTING:
        _open += step
        engine.LEDGER = _recording if _open else None


def inside() -> bool:
    """Whether this thread is in the middle of a copy of devshim's own."""
    return getattr(_INSIDE, "copying", False)


def site() -> str:
    """Return the nearest line that is neither devshim's, a framework's nor Python's own, as ``file:line``."""
    frame = user_frame()
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def user_frame() -> FrameType:
    """Return the frame of that line; the outermost one where there is none, as in a thread of a framework's."""
    frame = sys._getframe(1)
    while _is_on_the_way(frame):
        if frame.f_back is None:
            return CALLER.get() or frame
        frame = frame.f_back
    return frame


def keeps_errors(frame: FrameType) -> bool:
    """Whether an error that went no farther than a frame was seen by no line of the user's.

    Lines of devshim and of an adapter, past which it did not get because they were called by code in C, and those of
    `logging`, whose handlers print every error and go on.  The conformance kit is a user, and `devshim.parallel` hands
    on what it has kept.
    """
    module = frame.f_globals.get("__name__") or ""
    root = module.partition(".")[0]
    if root == "logging":
        return frame.f_code.co_filename.startswith(_PYTHONS)
    return root in _OURS and not module.startswith((*_USERS, "devshim.collectives.parallel"))


def _is_on_the_way(frame: FrameType) -> bool:
    """Whether a frame's lines are nobody's; the conformance kit is a user."""
    module = frame.f_globals.get("__name__") or ""
    root = module.partition(".")[0]
    if root in sys.stdlib_module_names:  # a user's module may be called so as well
        return frame.f_code.co_filename.startswith(_PYTHONS)
    if frame.f_code.co_filename.startswith(_MADE):
        return True
    return root in _NOT_THEIRS and not module.startswith(_USERS)


def _recording(backend: Backend, source: Device, target: Device, nbytes: int | None, tensors: int) -> Recording | None:
    """What is entered around a copy (``nbytes`` None: around making a tensor); None where nobody here watches."""
    listening = _listening()
    if inside() or not (listening or any(block.open for block in GUARDED.get())):
        return None
    return Recording(listening if nbytes is not None else (), backend, source, target, nbytes, tensors)


def cloned(copies: Sequence[tuple[Backend, Any]], start: float) -> None:
    """Record what a model's clone holds on the device where it was made: a copy on that device."""
    listening = () if inside() else _listening()
    sums: dict[tuple[str, Device], list[Any]] = {}
    for backend, x in copies if listening else ():
        device = backend.device_of(x)
        row = sums.setdefault((backend.name, device), [backend, 0, 0])
        row[1] += backend.nbytes(x)
        row[2] += 1
    seconds = time.perf_counter() - start
    for (_, device), (backend, nbytes, tensors) in sums.items():
        for tell, _ in listening:
            tell(backend, device, device, nbytes, seconds, tensors, site(), start)


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

    def forget(self) -> None:
        """Say that nothing was copied."""
        self._listening, self._sync = (), False

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
