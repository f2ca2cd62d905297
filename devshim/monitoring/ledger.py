"""The ledger: every copy devshim makes, with its size, its time, and the line of yours that caused it.

Off, it costs the one path all copies take a look at a global (`transfers.engine.LEDGER`).  On, a log hears of the
copies of its own thread or task, and of those that `devshim.parallel` starts from it; blocks may be nested, and each
log hears of all that happens inside it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from devshim.devices import parsing
from devshim.devices.device import CPU
from devshim.registry import tracing
from devshim.transfers import observers

if TYPE_CHECKING:
    from os import PathLike

    from devshim.devices.device import Device
    from devshim.devices.parsing import DeviceLike

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
    """The line that caused it, as ``file:line``: the nearest that is neither devshim's nor a framework's."""
    backend: str
    """The framework."""
    start: float
    """When it began, in seconds on the clock of `time.perf_counter`."""
    thread: int
    """The thread's identifier."""
    simulated: bool = False
    """Whether a simulated card was the source or the target."""


class TransferLog:
    """What `transfers` heard of, while it is open and after.

    Attributes:
        records: The copies, in the order in which they ended.
    """

    def __init__(self) -> None:
        self.records: list[Transfer] = []

    def _hear(
        self, backend: Any, source: Any, target: Any, nbytes: int, seconds: float, tensors: int, site: str, start: float
    ) -> None:
        simulated = bool(backend.simulated) and not source is target is CPU
        thread = threading.get_ident()
        record = Transfer(source, target, nbytes, seconds, tensors, site, backend.name, start, thread, simulated)
        self.records.append(record)

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
        origin = None if source is None else parsing.device(source)
        aim = None if target is None else parsing.device(target)
        return sum(
            record.bytes
            for record in self.records
            if (origin is None or record.source is origin) and (aim is None or record.target is aim)
        )

    def to_chrome_trace(self, path: str | PathLike[str]) -> None:
        """Write a trace that Perfetto (ui.perfetto.dev) and chrome://tracing open: one row per thread and framework."""
        from devshim.monitoring.reports import write_trace

        write_trace(self.records, path)

    def plot(self, path: str | PathLike[str] | None = None) -> Any:
        """Draw who copied how much where, as a matrix of devices; needs matplotlib (``pip install 'devshim[plot]'``).

        Args:
            path: Where to write the picture, in the format of its ending; without it nothing is written.

        Returns:
            The matplotlib figure.
        """
        from devshim.monitoring.reports import draw

        return draw(self.records, path)

    def __repr__(self) -> str:
        from devshim.monitoring.reports import table

        return table(self.records)


class transfers:
    """A ``with`` block that gives a `TransferLog` of every copy devshim makes in it.

    Args:
        synchronize: Wait for the devices before and after each copy, so that ``seconds`` is the copy's own time; else
            it is the time until the call returned, which on a GPU may be sooner.

    >>> import devshim as ds
    >>> ds.use("numpy")
    >>> ds.simulate(gpus=2)
    <2 simulated GPUs>
    >>> x = ds.ones((32, 32), dtype="float32")
    >>> with ds.transfers() as log:
    ...     y = ds.place(x, "gpu:1")
    >>> log.total_bytes
    4096
    """

    def __init__(self, synchronize: bool = False) -> None:
        self._log = TransferLog()
        self._synchronize = synchronize
        self._opened: list[observers.Block] = []

    def __enter__(self) -> TransferLog:
        tracing.refuse("transfers", "enter it around the call of the compiled function")
        observers.enter(observers.LISTENING, (self._log._hear, self._synchronize), self._opened)
        return self._log

    def __exit__(self, *failure: object) -> None:
        observers.leave(observers.LISTENING, self._opened)


for _public in (Transfer, TransferLog, transfers):
    _public.__module__ = "devshim"
