"""The guard: report or refuse implicit transfers at the line that causes them.

An implicit transfer is a copy between devices that a framework makes on its own: ``float(x)``, ``print(x)``,
``if x > 0``, or an operation on two devices that it silently makes work. A copy that a line asks for, by a call of
devshim or by the framework's own moves (``x.to(d)``), is explicit, and is allowed. The support table says which
transfers can be detected on each framework.
"""

from __future__ import annotations

import logging
import threading
import warnings
from functools import lru_cache
from typing import TYPE_CHECKING

from devshim.devices.device import CPU
from devshim.errors import TransferError, messages
from devshim.monitoring import buffer_protocol
from devshim.registry import registry as registry_module
from devshim.registry import simulation_request, tracing
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
_LOCK = threading.RLock()
_instrumented: dict[str, AbstractContextManager[object]] = {}
_open = 0


class TransferWarning(UserWarning):
    """The warning for an implicit transfer in a guard with mode ``"warn"``."""


class guard:
    """A ``with`` block in which implicit transfers of this thread or task are reported or refused.

    If code in C catches a refusal and drops it, the refusal is raised when the block ends.

    A block that a generator opens also applies to its caller between two values: both are one thread and one task.

    Args:
        mode: ``"error"`` raises `TransferError` at the line, ``"warn"`` warns with `TransferWarning`, ``"log"`` writes
            a warning to the logger ``devshim``, ``"allow"`` does nothing, even inside a block with another mode.
        host_to_device: Another mode for this direction.
        device_to_host: Another mode for this direction.
        device_to_device: Another mode for this direction.

    Raises:
        ArgumentError: A mode is not one of these.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> with ds.guard("error"):
        ...     y = ds.place(ds.ones(2), "cpu")  # allowed: the line asks for it
    """

    def __init__(
        self,
        mode: Mode,
        *,
        host_to_device: Mode | None = None,
        device_to_host: Mode | None = None,
        device_to_device: Mode | None = None,
    ) -> None:
        by_direction = (host_to_device, device_to_host, device_to_device)
        for name, value in zip(("mode", *DIRECTIONS), (mode, *by_direction), strict=True):
            if value not in MODES and (value is not None or name == "mode"):
                raise unknown_choice(name, value, MODES)
        self.modes: dict[str, str] = {name: value or mode for name, value in zip(DIRECTIONS, by_direction, strict=True)}
        self._mode = mode
        self._opened: list[observers.Scope] = []
        self.refused: TransferError | None = None
        """The last refusal raised in this block."""

    def __repr__(self) -> str:
        named = "".join(f", {name}={each!r}" for name, each in self.modes.items() if each != self._mode)
        return f"guard({self._mode!r}{named})"

    def __enter__(self) -> None:
        tracing.refuse("guard", "enter it around the call of the compiled function")
        _change_open_count(1)
        observers.push(observers.GUARDED, self, self._opened)

    def __exit__(self, kind: object, failure: object, traceback: object) -> None:
        if not self._opened:
            raise messages.not_entered("guard")
        observers.pop(observers.GUARDED, self._opened)
        _change_open_count(-1)
        dropped = self._take_swallowed_refusal()
        refused = buffer_protocol.cause_of_refusal(failure) or _replaced_error(failure)
        if isinstance(refused, TransferError):
            raise refused from None
        if dropped is not None and (failure is None or isinstance(failure, Exception)):  # do not hide Ctrl-C
            raise dropped

    def _take_swallowed_refusal(self) -> TransferError | None:
        """Return a refusal that code in C or `logging` has swallowed, so that no line of the user's program saw it.

        An error's traceback begins with the outermost frame that the error has passed: here, a frame of that code.
        """
        refused, self.refused = self.refused, None
        trace = None if refused is None else refused.__traceback__
        return refused if trace is not None and observers.keeps_errors(trace.tb_frame) else None


def _replaced_error(failure: object) -> object:
    """Return the error that NumPy replaced by its own while it filled an array with an object's values."""
    if isinstance(failure, ValueError) and str(failure).startswith("setting an array element with a sequence"):
        return failure.__cause__
    return None


def _change_open_count(step: int) -> None:
    """Count the open guards; while one is open in the process, every loaded framework with a GPU is instrumented."""
    global _open
    with _LOCK:
        _open += step
        try:
            for backend in registry_module.loaded_backends() if _open else ():
                instrument(backend)
        except BaseException:  # this guard is not entered
            _open -= step
            raise
        finally:
            while _instrumented and not _open:
                _instrumented.popitem()[1].__exit__(None, None, None)


def instrument(backend: Backend) -> None:
    """Make a framework report its implicit transfers, if a guard is open, and if it has a device to copy to or from.

    This is called when a guard opens, and inside a guard when a framework is loaded or its simulated GPUs change.
    """
    with _LOCK:
        if _open and backend.name not in _instrumented and "guard" not in backend.gaps and _may_transfer(backend):
            reports = backend.report_implicit_transfers(_reporter(backend))
            reports.__enter__()
            _instrumented[backend.name] = reports


def _may_transfer(backend: Backend) -> bool:
    """Return False if a framework has no device but the host, so that none of its copies is between devices."""
    return bool(backend.simulated_or_removed) or not backend.has_only_host()


@lru_cache(maxsize=16)  # the wrappers of `instrumentation` are made once for each reporter
def _reporter(backend: Backend) -> Callable[[Device | None, Device, str], None]:
    def report(source: Device | None, target: Device, what: str) -> None:
        """Report an implicit transfer, in the mode of the innermost guard of the calling thread or task."""
        innermost = next((block.what for block in reversed(observers.GUARDED.get()) if block.open), None)
        if innermost is None or source is target or observers.in_own_transfer():
            return
        mode = innermost.modes[_direction(source, target)]
        if mode == "allow":
            return
        frame = observers.user_frame()
        copy = f"{backend.title} copies from {source or 'a GPU'} to {target} for {what}"
        problem = f"{copy} (an implicit transfer) at {observers.site_of(frame)}"
        if mode == "error":
            written = f"ds.place(x, {str(target)!r})" + (" or ds.to_numpy(x)" if target is CPU else "")
            innermost.refused = TransferError(
                problem, f"make the copy explicit, before the guard or inside it: {written}"
            )
            raise innermost.refused
        if mode == "log":
            _LOGGER.warning("%s", problem)
            return
        module, registry = frame.f_globals.get("__name__"), frame.f_globals.setdefault("__warningregistry__", {})
        file, line = frame.f_code.co_filename, frame.f_lineno  # the real ones: Python shows the line's source
        warnings.warn_explicit(problem, TransferWarning, file, line, module, registry)

    return report


def _direction(source: Device | None, target: Device) -> str:
    if source is CPU:
        return "host_to_device"
    return "device_to_host" if target is CPU else "device_to_device"


registry_module.on_load(instrument)
simulation_request.on_switch(instrument)
