"""The ledger: a record of every copy devshim makes, with its size, its time, and the user's line that caused it.

When the ledger is off, each copy only checks one global (`transfers.observing.ACTIVE`). When it is on, a log records
the copies in its thread or task, and in threads that `devshim.parallel` starts from it. Blocks may be nested,
and each log records everything that happens inside its block.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from devshim.devices import parsing
from devshim.devices.device import CPU
from devshim.errors import messages
from devshim.registry import tracing
from devshim.transfers import observers

if TYPE_CHECKING:
    from os import PathLike

    from devshim.devices.device import Device
    from devshim.devices.parsing import DeviceLike

__all__ = ["Transfer", "TransferLog", "transfers"]


class Transfer(NamedTuple):
    """One copy, of one tensor or of many tensors together, or one exchange of tensors between ranks.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> with ds.transfers() as log:
        ...     y = ds.copy(ds.ones(3, dtype="float32"), "cpu")
        >>> record = log.records[-1]
        >>> str(record.source), str(record.target), record.bytes, record.tensors
        ('cpu', 'cpu', 12, 1)
    """

    source: Device
    """The device of the data before the copy."""
    target: Device
    """The device of the data after the copy; a copy within a device has the same source and target."""
    bytes: int
    """Elements times element size, of all tensors together."""
    seconds: float
    """The time from the call to its return; if the log synchronizes, to the end of the copy."""
    tensors: int
    """The number of tensors that were copied together."""
    site: str
    """The line that caused it, as ``file:line``, or ``In [8]:3`` in a notebook: the nearest line outside devshim and
    the framework."""
    backend: str
    """The name of the framework."""
    start: float
    """The start time in seconds, on the clock of `time.perf_counter`."""
    thread: int
    """The thread's identifier."""
    simulated: bool = False
    """True if a simulated GPU was the source or the target."""
    call: str = ""
    """For an exchange between the ranks of a job, what it did, such as ``all_reduce, sum``; empty for a copy. Source
    and target are then the device of the first tensor, and ``bytes`` is what this rank has sent to others."""
    ranks: int = 1
    """The number of ranks that took part; 1 for a copy."""


_new_record = tuple.__new__  # of a named tuple and all of its fields: half the time of calling the class


class TransferLog:
    """The copies that `transfers` recorded, readable while it is open and after.

    Attributes:
        records: The copies, in the order in which they ended.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> with ds.transfers() as log:
        ...     y = ds.copy(ds.ones(3, dtype="float32"), "cpu")
        >>> log.bytes(target="cpu"), log.bytes(target="gpu")
        (12, 0)
    """

    def __init__(self) -> None:
        self.records: list[Transfer] = []

    def _record(
        self,
        backend: Any,
        source: Any,
        target: Any,
        nbytes: int,
        seconds: float,
        tensors: int,
        site: str,
        start: float,
        call: str = "",
        ranks: int = 1,
    ) -> None:
        simulated = bool(backend.simulated) and not source is target is CPU
        thread = threading.get_ident()
        fields = (source, target, nbytes, seconds, tensors, site, backend.name, start, thread, simulated, call, ranks)
        self.records.append(_new_record(Transfer, fields))

    @property
    def count(self) -> int:
        """The number of copies; a copy of many tensors together counts as one."""
        return len(self.records)

    @property
    def total_bytes(self) -> int:
        """The total bytes of all copies."""
        return sum(record.bytes for record in self.records)

    @property
    def seconds(self) -> float:
        """The total time of all copies."""
        return sum(record.seconds for record in self.records)

    def bytes(self, source: DeviceLike | None = None, target: DeviceLike | None = None) -> int:
        """Return the bytes copied from a device, to a device, or from one to the other.

        With neither, exchanges between ranks count, too.

        Args:
            source: Only copies from this device; None for any.
            target: Only copies to this device; None for any.
        """
        origin = None if source is None else parsing.device(source)
        aim = None if target is None else parsing.device(target)
        return sum(
            record.bytes
            for record in self.records
            if (origin is None or record.source is origin) and (aim is None or record.target is aim)
            if not record.call or origin is aim is None
        )

    def to_chrome_trace(self, path: str | PathLike[str]) -> None:
        """Write a trace for Perfetto (ui.perfetto.dev) and chrome://tracing: one row per thread and framework."""
        from devshim.monitoring.reports import write_trace

        write_trace(self.records, path)

    def plot(self, path: str | PathLike[str] | None = None) -> Any:
        """Draw the bytes copied between devices as a matrix; needs matplotlib (``pip install 'devshim[plot]'``).

        Args:
            path: The file for the picture, in the format of its suffix; without it nothing is written.

        Returns:
            The matplotlib figure.
        """
        from devshim.monitoring.reports import draw

        return draw(self.records, path)

    def __repr__(self) -> str:
        from devshim.monitoring.reports import table

        return table(self.records)

    def _repr_html_(self) -> str:
        from devshim.monitoring.reports import html

        return html(self.records)


class transfers:
    """A ``with`` block that returns a `TransferLog` of every copy that devshim makes in it.

    Args:
        synchronize: Wait for the devices before and after each copy, so that ``seconds`` is the copy's own time;
            without it, the time until the call returned, which on a GPU may be shorter.

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
        self._opened: list[observers.Scope] = []
        self._entered = False

    def __enter__(self) -> TransferLog:
        tracing.refuse("transfers", "enter it around the call of the compiled function")
        observers.push(observers.LISTENING, (self._log._record, self._synchronize), self._opened)
        self._entered = True
        return self._log

    def __exit__(self, *failure: object) -> None:
        if not self._opened:
            raise messages.not_entered("transfers")
        observers.pop(observers.LISTENING, self._opened)

    def __repr__(self) -> str:
        state = "open" if self._opened else "ended" if self._entered else "not entered"
        found = self._log.records
        copies = "1 copy" if len(found) == 1 else f"{len(found)} copies"
        return f"<transfers: {state}, {copies}, {self._log.total_bytes:,} bytes>"
