"""The ledger: every copy devshim makes, with its size, its time, and the line of yours that caused it.

Off, it costs the one path all copies take a look at a global (`devshim._transfer.LEDGER`).  On, a log hears of the
copies of its own thread or task, and of those that `devshim.parallel` starts from it; blocks may be nested, and each
log hears of all that happens inside it.
"""

from __future__ import annotations

import sys
import threading
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

from devshim import _spec, _transfer

if TYPE_CHECKING:
    from os import PathLike

    from devshim._spec import DeviceLike
    from devshim.backend import Backend
    from devshim.device import Device

__all__ = ["Transfer", "TransferLog", "transfers"]


class Transfer(NamedTuple):
    """One copy, or one of many tensors at once."""

    source: Device
    """Where the data was."""
    target: Device
    """Where it went; a copy on a device has the same twice."""
    bytes: int
    """Elements times element size, of all tensors together."""
    seconds: float
    """From the call to its return; to the end of the copy where the log synchronises."""
    tensors: int
    """How many were copied at once."""
    site: str
    """The line that caused it, as ``file:line``: the nearest that is not devshim's."""
    backend: str
    """The framework."""
    start: float
    """When it began, in seconds on the clock of `time.perf_counter`."""
    thread: int
    """The thread's identifier."""


class TransferLog:
    """What `transfers` heard of, while it is open and after.

    Attributes:
        records: The copies, in the order in which they ended.
    """

    def __init__(self, synchronize: bool = False) -> None:
        self.records: list[Transfer] = []
        self._synchronize = synchronize

    @property
    def count(self) -> int:
        """How many copies there were; one of many tensors at once is one."""
        return len(self.records)

    @property
    def total_bytes(self) -> int:
        """The bytes of all of them."""
        return sum(record.bytes for record in self.records)

    @property
    def seconds(self) -> float:
        """The time they took, one after the other."""
        return sum(record.seconds for record in self.records)

    def bytes(self, source: DeviceLike | None = None, target: DeviceLike | None = None) -> int:
        """Return the bytes copied from a device, to a device, or from one to the other.

        Args:
            source: Only copies from there; None for any.
            target: Only copies to there; None for any.
        """
        origin = None if source is None else _spec.device(source)
        aim = None if target is None else _spec.device(target)
        return sum(
            record.bytes
            for record in self.records
            if (origin is None or record.source is origin) and (aim is None or record.target is aim)
        )

    def to_chrome_trace(self, path: str | PathLike[str]) -> None:
        """Write a trace that Perfetto (ui.perfetto.dev) and chrome://tracing open: one row per thread and framework."""
        from devshim._ledger_views import write_trace

        write_trace(self.records, path)

    def plot(self, path: str | PathLike[str] | None = None) -> Any:
        """Draw who copied how much where, as a matrix of devices; needs matplotlib (``pip install 'devshim[plot]'``).

        Args:
            path: Where to write the picture, in the format of its ending; without it nothing is written.

        Returns:
            The matplotlib figure.
        """
        from devshim._ledger_views import draw

        return draw(self.records, path)

    def __repr__(self) -> str:
        from devshim._ledger_views import table

        return table(self.records)


_LOGS: ContextVar[tuple[TransferLog, ...]] = ContextVar("devshim_transfers", default=())
_COUNTING = threading.Lock()
_INSIDE = threading.local()
_open = 0


class transfers:
    """A ``with`` block that gives a `TransferLog` of every copy devshim makes in it.

    Args:
        synchronize: Wait for the devices before and after each copy, so that ``seconds`` is the copy's own time; else
            it is the time until the call returned, which on a GPU may be sooner.

    >>> with ds.transfers() as log:  # doctest: +SKIP
    ...     y = ds.place(x, "gpu:1")
    >>> log.total_bytes  # doctest: +SKIP
    4096
    """

    def __init__(self, synchronize: bool = False) -> None:
        self._log = TransferLog(synchronize)

    def __enter__(self) -> TransferLog:
        _LOGS.set((*_LOGS.get(), self._log))
        _count(1)
        return self._log

    def __exit__(self, *failure: object) -> None:
        _LOGS.set(tuple(log for log in _LOGS.get() if log is not self._log))
        _count(-1)


def _count(step: int) -> None:
    """Have copies recorded while a block is open anywhere in the process."""
    global _open
    with _COUNTING:
        _open += step
        _transfer.LEDGER = _recording if _open else None


def _recording(backend: Backend, source: Device, target: Device, nbytes: int, tensors: int) -> _Recording | None:
    """What `devshim._transfer` enters around a copy; None where nobody of this context listens."""
    logs = _LOGS.get()
    if not logs or getattr(_INSIDE, "copying", False):  # what a copy is made of is not another one
        return None
    return _Recording(logs, backend, source, target, nbytes, tensors)


class _Recording:
    """One copy that is being made; one that fails is not recorded."""

    __slots__ = ("_about", "_backend", "_logs", "_site", "_start", "_sync")

    def __init__(self, logs: tuple[TransferLog, ...], backend: Backend, *about: Any) -> None:
        self._logs, self._backend, self._about = logs, backend, about
        self._sync = any(log._synchronize for log in logs)

    def __enter__(self) -> None:
        self._site = _site()
        if self._sync:
            self._wait()
        _INSIDE.copying = True
        self._start = time.perf_counter()

    def __exit__(self, failed: object, *rest: object) -> None:
        _INSIDE.copying = False
        if failed is not None:
            return
        if self._sync:
            self._wait()
        seconds = time.perf_counter() - self._start
        source, target, nbytes, tensors = self._about
        name = self._backend.name
        record = Transfer(
            source, target, nbytes, seconds, tensors, self._site, name, self._start, threading.get_ident()
        )
        for log in self._logs:
            log.records.append(record)

    def _wait(self) -> None:
        for device in set(self._about[:2]):
            if device.kind != "cpu":
                self._backend.synchronize(device)


def _site() -> str:
    """The nearest line that is not devshim's."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _OURS:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


_OURS = {"devshim", "devshim_backends"}

for _public in (Transfer, TransferLog, transfers):
    _public.__module__ = "devshim"
