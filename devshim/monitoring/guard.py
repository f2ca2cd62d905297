"""The guard: copies that nobody wrote down, told or refused at the line that causes them.

What is hidden is what a framework copies between devices on its own: ``float(x)``, ``print(x)``, ``if x > 0``, a mixed
operation that it mends silently.  What a line says, devshim's calls among them and the framework's own moves
(``x.to(d)``), is no secret, and is left alone.  What each framework lets be seen stands in the support table.
"""

from __future__ import annotations

import logging
import threading
import warnings
from typing import TYPE_CHECKING

from devshim.devices.device import CPU
from devshim.errors import TransferError
from devshim.monitoring import buffer_protocol
from devshim.registry import registry as registry_module
from devshim.registry import tracing
from devshim.tensors.value_hints import unknown_choice
from devshim.transfers import observers

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from typing import Literal, TypeAlias

    from devshim.contract.backend import Backend
    from devshim.devices.device import Device

    Mode: TypeAlias = Literal["allow", "log", "warn", "error"]

__all__ = ["TransferWarning", "guard"]

MODES = ("allow", "log", "warn", "error")
DIRECTIONS = ("host_to_device", "device_to_host", "device_to_device")
_LOGGER = logging.getLogger("devshim")
_COUNTING = threading.RLock()
_watched: dict[str, AbstractContextManager[object]] = {}
_open = 0


class TransferWarning(UserWarning):
    """A hidden transfer happened where a guard warns of it."""


class guard:
    """A ``with`` block in which hidden transfers are told or refused, in this thread or task.

    Where code in C meets a refusal and drops it, the refusal is raised when the block ends.

    A block that a generator opens holds for its caller, too, between two values: that is one thread and one task.

    Args:
        mode: ``"error"`` raises `TransferError` at the line, ``"warn"`` warns with `TransferWarning`, ``"log"`` writes
            a warning to the logger ``devshim``, ``"allow"`` does nothing, also inside a block that would.
        host_to_device: Another mode for this direction.
        device_to_host: Another mode for this direction.
        device_to_device: Another mode for this direction.

    Raises:
        ArgumentError: A mode is none of these.
    """

    def __init__(
        self,
        mode: Mode,
        *,
        host_to_device: Mode | None = None,
        device_to_host: Mode | None = None,
        device_to_device: Mode | None = None,
    ) -> None:
        asked = (host_to_device, device_to_host, device_to_device)
        for name, value in zip(("mode", *DIRECTIONS), (mode, *asked), strict=True):
            if value not in MODES and (value is not None or name == "mode"):
                raise unknown_choice(name, value, MODES)
        self.modes: dict[str, str] = {name: value or mode for name, value in zip(DIRECTIONS, asked, strict=True)}
        self._opened: list[observers.Block] = []
        self.refused: TransferError | None = None
        """The last refusal."""

    def __enter__(self) -> None:
        tracing.refuse("guard", "enter it around the call of the compiled function")
        _count(1)
        observers.enter(observers.GUARDED, self, self._opened)

    def __exit__(self, kind: object, failure: object, traceback: object) -> None:
        observers.leave(observers.GUARDED, self._opened)
        _count(-1)
        dropped = self._dropped()
        refused = buffer_protocol.refusal(failure) or _swallowed(failure)
        if isinstance(refused, TransferError):
            raise refused from None
        if dropped is not None and (failure is None or isinstance(failure, Exception)):  # not in the place of Ctrl-C
            raise dropped

    def _dropped(self) -> TransferError | None:
        """A refusal that code in C or `logging` has kept for itself; no line of the user's has seen it.

        An error's traceback begins with the outermost frame that it has come through: theirs, then.
        """
        refused, self.refused = self.refused, None
        trace = None if refused is None else refused.__traceback__
        return refused if trace is not None and observers.keeps_errors(trace.tb_frame) else None


def _swallowed(failure: object) -> object:
    """What NumPy has met while it filled an array with an object's values, and put an error of its own before."""
    if isinstance(failure, ValueError) and str(failure).startswith("setting an array element with a sequence"):
        return failure.__cause__
    return None


def _count(step: int) -> None:
    """Have every loaded framework watched while a guard is open anywhere in the process."""
    global _open
    with _COUNTING:
        _open += step
        try:
            for backend in registry_module.loaded() if _open else ():
                attend(backend)
        except BaseException:  # this guard is not entered
            _open -= step
            raise
        finally:
            while _watched and not _open:
                _watched.popitem()[1].__exit__(None, None, None)


def attend(backend: Backend) -> None:
    """Watch a framework that is loaded while a guard is open."""
    with _COUNTING:
        if _open and backend.name not in _watched and "guard" not in backend.gaps:
            watching = backend.watch(_reporter(backend))
            watching.__enter__()
            _watched[backend.name] = watching


def _reporter(backend: Backend) -> Callable[[Device | None, Device, str], None]:
    def report(source: Device | None, target: Device, what: str) -> None:
        """Tell of a hidden copy, as the innermost guard of the calling thread or task wishes."""
        innermost = next((block.what for block in reversed(observers.GUARDED.get()) if block.open), None)
        if innermost is None or source is target or observers.inside():
            return
        mode = innermost.modes[_direction(source, target)]
        if mode == "allow":
            return
        frame = observers.user_frame()
        file, line = frame.f_code.co_filename, frame.f_lineno
        problem = f"{backend.title} copies from {source or 'a GPU'} to {target} for {what}, unasked, at {file}:{line}"
        if mode == "error":
            written = f"ds.place(x, {str(target)!r})" + (" or ds.to_numpy(x)" if target is CPU else "")
            innermost.refused = TransferError(problem, f"write it down: {written}, outside the guard or inside")
            raise innermost.refused
        if mode == "log":
            _LOGGER.warning("%s", problem)
            return
        module, registry = frame.f_globals.get("__name__"), frame.f_globals.setdefault("__warningregistry__", {})
        warnings.warn_explicit(problem, TransferWarning, file, line, module, registry)

    return report


def _direction(source: Device | None, target: Device) -> str:
    if source is CPU:
        return "host_to_device"
    return "device_to_host" if target is CPU else "device_to_device"


for _public in (TransferWarning, guard):
    _public.__module__ = "devshim"

registry_module.on_load(attend)
