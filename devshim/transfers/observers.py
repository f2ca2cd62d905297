"""The observers of copies, ledgers and guards, and the mark of a copy that devshim itself makes.

`devshim.transfers.engine` calls this module through `devshim.transfers.observing` while any observer is active in the
process. Copies that a framework makes inside a copy by devshim are part of that copy, not implicit transfers.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from devshim.registry import registry
from devshim.transfers import cells, observing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from devshim.contract.backend import Backend
    from devshim.devices.device import Device

    Listener = Callable[..., None]
    """Called for each copy with backend, source, target, bytes, seconds, tensors, site, start; for an exchange between
    ranks also with its call and the number of ranks."""

LISTENING: ContextVar[tuple[Scope, ...]] = ContextVar("devshim_listening", default=())
"""The listeners of this context, each with a flag: True to wait for the devices."""
GUARDED: ContextVar[tuple[Scope, ...]] = ContextVar("devshim_guarded", default=())
"""The guards of this context (`devshim.monitoring.guard`), the innermost last."""
CALLER: ContextVar[FrameType | None] = ContextVar("devshim_caller", default=None)
"""The user's frame that waits for a thread of `devshim.parallel`."""

_COUNTING = threading.Lock()
_INSIDE = threading.local()
_open = 0
_OURS = {"devshim", "devshim_backends"}
_USERS = ("devshim.testing.", "devshim.certify.")
"""Packages of devshim that use it as a user's program does."""
_NOT_THEIRS = {*_OURS, "array_api_compat", "optree", "keras", "tf_keras", *registry.ROOTS}
"""Root packages that may be between a user's line and a copy: devshim, the frameworks, and what they call."""
_PYTHONS = (os.path.dirname(os.__file__) + os.sep, "<frozen ")
"""The paths of the standard library: logging formats its arguments, and statistics adds them up."""
_MADE = "<eval_with_key>"
"""The pseudo file name of functions that torch.fx generates, which are compiled ones."""


class Scope:
    """A ``with`` block of an observer, as stored in the contexts in which it was opened.

    A task has a copy of the context in which it was started, and a generator may be closed in another context than the
    one in which it was opened. So a context may still contain a block that is over.
    """

    __slots__ = ("open", "what")

    def __init__(self, what: Any) -> None:
        self.what: Any = what
        self.open: bool = True


def push(contexts: ContextVar[tuple[Scope, ...]], what: Any, opened: list[Scope]) -> None:
    """Open a block in this context.

    Args:
        contexts: `LISTENING` or `GUARDED`.
        what: The observer.
        opened: The open blocks of the same object, to which this one is added.
    """
    block = Scope(what)
    opened.append(block)
    contexts.set((*(each for each in contexts.get() if each.open), block))
    _watch(1)


def pop(contexts: ContextVar[tuple[Scope, ...]], opened: list[Scope]) -> None:
    """Close the innermost of an object's blocks in this context; in a context that has none of them, the last."""
    block = next((each for each in reversed(contexts.get()) if each in opened), opened[-1])
    opened.remove(block)
    block.open = False
    contexts.set(tuple(each for each in contexts.get() if each.open))
    _watch(-1)


def _active_listeners() -> tuple[tuple[Listener, bool], ...]:
    """Return the listeners of this context, each once, however often it is entered."""
    blocks = LISTENING.get()
    if len(blocks) == 1:  # nearly always
        return (blocks[0].what,) if blocks[0].open else ()
    return tuple(dict.fromkeys(block.what for block in blocks if block.open))


def _watch(step: int) -> None:
    """Count the open blocks of the process, and activate the recording while there are any."""
    global _open
    with _COUNTING:
        _open += step
        observing.activate(record=_recording if _open else None)


def in_own_transfer() -> bool:
    """Return True if this thread is inside a copy that devshim itself makes."""
    return getattr(_INSIDE, "copying", False)


def site() -> str:
    """Return the nearest line outside devshim, the frameworks and the standard library, as ``file:line``.

    A line of a notebook is ``In [8]:3``.
    """
    return site_of(user_frame())


def site_of(frame: FrameType) -> str:
    """Return the line that a frame executes, in the form of `site`."""
    return cells.line_name(frame.f_code.co_filename, frame.f_lineno)


def user_frame(depth: int = 1) -> FrameType:
    """Return the frame of that nearest line; without one, as in a framework's thread, the caller's or the outermost.

    Args:
        depth: Where to start: 1 is the function that calls this one. All below must be functions of devshim.
    """
    frame = sys._getframe(depth)
    while frame.f_code.co_filename in _OWN_FILES or _is_on_the_way(frame):
        if frame.f_back is None:
            return CALLER.get() or frame
        frame = frame.f_back
    return frame


def is_users(frame: FrameType) -> bool:
    """Return True if a frame is of the user's program: not of devshim, a framework or the standard library."""
    return not _is_on_the_way(frame)


def keeps_errors(frame: FrameType) -> bool:
    """Return True if an error that got no farther than a frame was not seen by any line of the user's program.

    This is so for a frame of devshim or an adapter, where the error stops because C code called the frame, and for a
    frame of `logging`, whose handlers print every error and go on. The conformance kit counts as a user, and
    `devshim.parallel` raises the errors that it has stored.
    """
    module = frame.f_globals.get("__name__") or ""
    root = module.partition(".")[0]
    if root == "logging":
        return frame.f_code.co_filename.startswith(_PYTHONS)
    return root in _OURS and not module.startswith((*_USERS, "devshim.collectives.parallel"))


def _is_on_the_way(frame: FrameType) -> bool:
    """Return True if a frame is not the user's; the conformance kit counts as a user."""
    module = frame.f_globals.get("__name__") or ""
    file = frame.f_code.co_filename
    found = _KNOWN.get((module, file))
    if found is None:
        found = _is_library(module, file)
        if len(_KNOWN) >= _MOST_KNOWN:  # cells of a notebook and generated functions: there are ever more
            _KNOWN.clear()
        _KNOWN[module, file] = found
        if found and _is_own_file(module, file):
            _OWN_FILES.add(file)
    return found


_KNOWN: dict[tuple[str, str], bool] = {}
"""Module and file -> True if their lines are not a user's, as `_is_on_the_way` found."""
_MOST_KNOWN = 4096
_OWN_FILES: set[str] = set()
"""Files of devshim and the adapters. Most frames on the way are in them, and their names suffice."""


def _is_own_file(module: str, file: str) -> bool:
    root = module.partition(".")[0]
    return root in _OURS and root in sys.modules and file.startswith(tuple(sys.modules[root].__path__))


def _is_library(module: str, file: str) -> bool:
    root = module.partition(".")[0]
    if root in sys.stdlib_module_names:  # a user's module may also have this name
        return file.startswith(_PYTHONS)
    if file.startswith(_MADE):
        return True
    if not module and os.path.isabs(file) and not os.path.isfile(file):  # code that PyTorch generates and executes
        return file.startswith(tuple(folder for folder in map(_folder, _NOT_THEIRS) if folder))
    return root in _NOT_THEIRS and not module.startswith(_USERS)


def _folder(package: str) -> str:
    """Return the folder of an imported package, with the separator at its end; empty if it is not imported."""
    file = getattr(sys.modules.get(package), "__file__", None)
    return os.path.dirname(file) + os.sep if file else ""


def _recording(backend: Backend, source: Device, target: Device, nbytes: int | None, tensors: int) -> Recording | None:
    """Return the context for a copy (``nbytes`` None: for making a tensor); None if no observer is active here."""
    listening = _active_listeners()
    if in_own_transfer() or not (listening or any(block.open for block in GUARDED.get())):
        return None
    return Recording(listening if nbytes is not None else (), backend, source, target, nbytes, tensors)


def record_clone(copies: Sequence[tuple[Backend, Any]], start: float) -> None:
    """Record the data of a model's clone as copies on the device where the clone was made."""
    listening = () if in_own_transfer() else _active_listeners()
    sums: dict[tuple[str, Device], list[Any]] = {}
    for backend, x in copies if listening else ():
        device = backend.device_of(x)
        row = sums.setdefault((backend.name, device), [backend, 0, 0])
        row[1] += backend.nbytes(x)
        row[2] += 1
    seconds = time.perf_counter() - start
    for (_, device), (backend, nbytes, tensors) in sums.items():
        for record, _ in listening:
            record(backend, device, device, nbytes, seconds, tensors, site(), start)


def record_exchange(tensors: Sequence[tuple[Backend, Any]], nbytes: int, start: float, call: str, ranks: int) -> None:
    """Record an exchange between ranks, which has ended now; ``nbytes`` is what this rank has sent."""
    listening = _active_listeners()
    if listening and tensors:
        backend, x = tensors[0]
        device, seconds = backend.device_of(x), time.perf_counter() - start
        for record, _ in listening:
            record(backend, device, device, nbytes, seconds, len(tensors), site(), start, call, ranks)


class Recording:
    """The recording of one copy that is being made; a copy that fails is not recorded."""

    __slots__ = ("_about", "_backend", "_listening", "_site", "_start", "_sync")

    def __init__(self, listening: Any, backend: Backend, *about: Any) -> None:
        self._listening, self._backend, self._about = listening, backend, about
        self._sync = False
        for _, wait in listening:
            if wait:
                self._sync = True

    def __enter__(self) -> None:
        # This method, the copy engine's function with the copy, and the one that called it are devshim's.
        self._site = site_of(user_frame(3)) if self._listening else ""
        if self._sync:
            self._wait()
        _INSIDE.copying = True
        self._start = time.perf_counter()

    def set_nbytes(self, nbytes: int) -> None:
        """Set how many bytes were copied, if only the result shows it."""
        self._about = (*self._about[:2], nbytes, self._about[3])

    def forget(self) -> None:
        """Mark that nothing was copied."""
        self._listening, self._sync = (), False

    def __exit__(self, failed: object, *rest: object) -> None:
        _INSIDE.copying = False
        if failed is not None:
            return
        if self._sync:
            self._wait()
        seconds = time.perf_counter() - self._start
        source, target, nbytes, tensors = self._about
        for record, _ in self._listening:
            record(self._backend, source, target, nbytes, seconds, tensors, self._site, self._start)

    def _wait(self) -> None:
        for device in set(self._about[:2]):
            if device.kind != "cpu":
                self._backend.synchronize(device)
