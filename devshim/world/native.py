"""Sums by the framework's own engine, such as gloo, after the ranks have compared their calls.

An engine that gets tensors of different dtypes returns garbage, and crashes if their lengths differ. Therefore
all ranks compare the step, the operation, the dtypes and the shapes before a sum: by one small maximum of the engine
itself, which also finds the dtypes that some rank cannot add here, and the number of devices. Only a sum that all ranks
expect needs no comparison (`devshim.world.habits`).
"""

from __future__ import annotations

import atexit
import os
import time
import zlib
from collections import deque
from contextlib import closing
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from devshim.contract.rank_engines import collective_timeout
from devshim.contract.rank_rendezvous import AbsentError
from devshim.devices.device import CPU
from devshim.errors import AlreadyStartedError, ArgumentError, DevshimError, RankFailedError, UnsupportedError
from devshim.registry import current
from devshim.transfers import engine, observers
from devshim.world import siblings, trees
from devshim.world.cluster import restore_sigterm
from devshim.world.portable import disagreement, late_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from devshim.contract.backend import Backend
    from devshim.contract.rank_engines import RankEngine
    from devshim.contract.ranks import Place
    from devshim.errors import RankLateError
    from devshim.world.steps import Step, Steps

T = TypeVar("T")

__all__ = ["HAS_NAN", "LACKS", "RIGHT", "Native", "requested_engine"]

RIGHT, HAS_NAN, LACKS = range(3)
"""What the engine can do with tensors of a dtype: reduce them; reduce them, but lose NaN; or not reduce them."""
_KINDS = 32
"""The most dtypes of a call that are compared; a call with more dtypes uses the portable engine."""
_LONGEST = 200
"""The maximum number of characters of an engine's error that are shown."""
_TEXT, _END = 400, 90
"""The number of bytes of a rank's call that are shown, and of those at its end, the checksum of its shapes."""


def requested_engine() -> str:
    """Return ``"native"``, ``"portable"``, or an empty text, as the environment requests.

    Raises:
        ArgumentError: The variable has another value.
    """
    value = os.environ.get("DEVSHIM_ENGINE", "")
    if value not in ("", "native", "portable"):
        msg = f"the variable DEVSHIM_ENGINE is {value!r}, and it must be 'native' or 'portable'"
        raise ArgumentError(msg, "set DEVSHIM_ENGINE=native or DEVSHIM_ENGINE=portable, or unset it")
    return value


class Native:
    """The framework's engine in one rank.

    Args:
        place: The place of the rank.
        steps: The collectives of the rank; the start of the engine belongs to the first sum.

    Attributes:
        backend: The backend whose engine runs, or None.
        why_not: Why no engine runs, once one was tried.
    """

    def __init__(self, place: Place, steps: Steps) -> None:
        self._place, self._steps = place, steps
        self._engine: RankEngine | None = None
        self._tried: set[str] = set()
        self.backend: Backend | None = None
        self.why_not: str = ""

    @property
    def name(self) -> str:
        """The name of the engine, such as ``gloo``; empty if none runs."""
        return "" if self._engine is None else self._engine.name

    @property
    def part_bytes(self) -> int:
        """The most bytes of a sum that the engine takes in one call; 0 for all."""
        return 0 if self._engine is None else self._engine.part_bytes

    @property
    def in_place(self) -> bool:
        """True if the sum of one tensor on the host may be computed in its own memory."""
        return self._engine is not None and self._engine.in_place

    def start_any(self, own: Backend | None = None) -> bool:
        """Return True if an engine runs; start that of a call's tensors, or else that of the framework chosen by `use`.

        Every call does this, with or without tensors: a rank that makes another call would be in another engine, where
        the ranks cannot compare their calls.

        Args:
            own: The backend of the tensors.

        Raises:
            WorldError: The engine did not start, as for `start`; or another error of `start`.
        """
        runs = self._engine is not None or (own is not None and self.start(own))
        runs = runs or (current.chosen_name() is not None and self.start(current.current()))
        self._steps.engine = "runs" if runs else "none"
        return runs

    def start(self, backend: Backend) -> bool:
        """Return True if an engine runs; the first call with a backend starts that of the backend.

        Raises:
            ArgumentError: The environment requests something other than an engine, or gives no address for it.
            UnsupportedError: It requests the framework's engine, but the framework has none.
            AlreadyStartedError: It requests an engine that had to start earlier.
            RankLateError: A rank did not take part in the start in time.
            RankFailedError: The engine did not start.
        """
        if self._engine is not None or backend.name in self._tried:
            return self._engine is not None
        mode = requested_engine()
        self.why_not = self._why_not(mode, backend)
        if not self.why_not:
            with self._steps.start(f"start of the ranks of {backend.name}") as step:
                try:
                    with restore_sigterm():  # JAX would catch the signal, and go on
                        self._engine = self._call(step, backend.start_ranks, self._place, mode == "native")
                except AlreadyStartedError as error:
                    if mode == "native":
                        raise
                    self.why_not = error.problem
        if self._engine is not None:
            self.backend = backend
            atexit.register(self._engine.close)
        elif not self.why_not:
            self.why_not = f"{backend.name} has no native collectives that devshim uses"
            if mode == "native":
                raise UnsupportedError(self.why_not, "unset DEVSHIM_ENGINE: the ranks then exchange tensors by Ray")
        self._tried.add(backend.name)
        return self._engine is not None

    def _why_not(self, mode: str, backend: Backend) -> str:
        """Return why the engine of a backend is not started; empty if it is tried."""
        if mode == "portable":
            return "DEVSHIM_ENGINE is portable"
        if mode == "" and backend.ranks_on_request:
            return f"{backend.ranks_on_request}; DEVSHIM_ENGINE=native uses it"
        if mode == "" and not self._place.engine_address:
            return "the launcher names no address where rank 0 may listen"
        return ""

    def describe(self) -> str:
        """Return which engine adds the tensors of a job, and why that is not the framework's own."""
        ray = "Ray, in the order of the ranks"
        if self.backend is not None:
            return f"{self.name} of {self.backend.name}; other dtypes: {ray}"
        if not self._tried:
            return "not started yet: the first sum starts an engine"
        return f"{ray}, because {self.why_not}"

    def lacks(self, backend: Backend, dtype: str, op: str) -> bool:
        """Return True if the engine did not pass the tests of an operation for a dtype of this backend."""
        return self._engine is None or backend is not self.backend or not self._engine.is_right(dtype, op)

    @property
    def loses_nan(self) -> bool:
        """True if the maximum and minimum of values with NaN may be other values."""
        return self._engine is not None and not self._engine.keeps_nan

    def compare(self, step: Step, states: Sequence[int], devices: int) -> tuple[list[int], int]:
        """Compare the step with the other ranks.

        Args:
            step: The step of this rank.
            states: For each dtype, `RIGHT`, `HAS_NAN` or `LACKS` on this rank.
            devices: The number of devices of this rank.

        Returns:
            The largest state of all ranks for each dtype, and the devices of all ranks.

        Raises:
            RanksDisagreeError: A rank does something else in this step.
            RankLateError: A rank has not made this call in time.
            RankFailedError: A rank has ended.
            UnsupportedError: The environment requests the engine, but some rank cannot use it here.
        """
        place = self._place
        own = zlib.crc32(f"{step.number} {step.what}".encode()) & 0x7FFFFFFF
        flags = list(states[:_KINDS])
        counts = [devices if rank == place.rank else 0 for rank in range(place.size)]
        found = self._max_ints(step, [own, -own, *flags, *[0] * (_KINDS - len(flags)), *counts])
        if found[0] != -found[1]:
            self._disagree(step)
        somewhere = found[2 : 2 + len(flags)] + [LACKS] * (len(states) - len(flags))
        if LACKS in somewhere and requested_engine() == "native":
            msg = f"{self.name} did not pass the tests for this call: {step.what}"
            raise UnsupportedError(msg, "unset DEVSHIM_ENGINE: devshim then adds such tensors by Ray")
        return somewhere, sum(found[2 + _KINDS :])

    def reduce(self, step: Step, parts: Iterable[np.ndarray], op: Literal["sum", "mean", "max", "min"]) -> None:
        """Replace flat arrays by their sum, maximum or minimum over all ranks; ``mean`` adds."""
        assert self._engine is not None
        assert self.backend is not None
        backend, given = self.backend, deque[tuple[Any, Any]]()

        def tensors() -> Iterator[Any]:
            for part in parts:
                shares = trees.can_share(backend, part, CPU)
                x = trees.tensor_of(backend, part, CPU, copy=not shares, recorded=False)
                given.append((part, x if shares else None))
                yield x

        with closing(self._engine.reduce_parts(tensors(), "sum" if op == "mean" else op)) as results:
            while (result := self._call(step, next, results, None)) is not None:
                part, own = given.popleft()
                if result is not own:
                    np.copyto(part, engine.to_host(backend, result, copy=False))

    def takes(self, backend: Backend, x: Any) -> bool:
        """Return True if the engine takes a tensor itself, and returns a new one: no copy on the host is needed."""
        assert self._engine is not None
        return (
            self._engine.takes_whole and backend.immutable and backend.device_of(x) is CPU and bool(backend.nbytes(x))
        )

    def reduce_whole(self, step: Step, x: Any, op: Literal["sum", "max", "min"]) -> Any:
        """Return the sum, maximum or minimum of a tensor that the engine takes over all ranks."""
        assert self._engine is not None
        return self._call(step, self._engine.reduce_flat, x, op)

    def _max_ints(self, step: Step, values: list[int]) -> list[int]:
        assert self._engine is not None
        return self._call(step, self._engine.max_ints, values)

    def _disagree(self, step: Step) -> None:
        """Raise the error that shows this rank's call and the call of the first rank that differs."""
        place = self._place
        mine = _cut(f"{step.number} {step.what}".encode())
        cells = [0] * (_TEXT * place.size)
        cells[_TEXT * place.rank : _TEXT * place.rank + len(mine)] = mine
        found = self._max_ints(step, cells)
        texts = [bytes(found[_TEXT * rank : _TEXT * (rank + 1)]).rstrip(b"\0") for rank in range(place.size)]
        other = next(rank for rank, text in enumerate(texts) if text != mine)
        number, _, said = texts[other].decode(errors="replace").partition(" ")
        raise disagreement(place, step, other, said if number == str(step.number) else f"step {number}, {said}")

    def _call(self, step: Step, function: Callable[..., T], *args: object) -> T:
        """Call the engine; turn its errors, which name no rank, into errors of a job."""
        try:
            return function(*args)
        except (DevshimError, MemoryError):
            raise
        except AbsentError as error:
            raise late_error(self._place, step, error.ranks) from error
        except Exception as error:  # each framework has its own
            if self._is_of_program(error):
                raise
            raise self._failure(step, error) from error

    def _is_of_program(self, error: Exception) -> bool:
        """Return True if the program raised an error in a signal handler, which interrupted the engine."""
        last = error.__traceback__
        while last is not None and last.tb_next is not None:
            last = last.tb_next
        if last is None or last.tb_frame.f_globals.get("__name__") == type(self._engine).__module__:
            return False
        return observers.is_users(last.tb_frame)

    def _failure(self, step: Step, error: Exception) -> RankFailedError | RankLateError:
        place, waited = self._place, time.monotonic() - step.began
        others = [rank for rank in range(place.size) if rank != place.rank]
        if waited > 0.9 * collective_timeout(place):
            return late_error(place, step, others if len(others) == 1 else siblings.stopped(place))
        known = others if len(others) == 1 else siblings.ended(place)
        said = shorten(next(iter(str(error).splitlines()), type(error).__name__), _LONGEST, placeholder=" ...")
        gone = (
            f" ({place.list_ranks(known)} {'has' if len(known) == 1 else 'have'} ended)"
            if known and len(others) > 1
            else ""
        )
        msg = f"step {step.number} ({step.what}) failed on {place.name_rank(place.rank)}{gone}: {said}"
        failed = RankFailedError(msg, "if another rank has ended, see what it printed last")
        if len(known) == 1:
            failed.rank, failed.host = known[0], place.host_of(known[0])
        return failed


def _cut(text: bytes) -> bytes:
    """Return the beginning and the end of a long text."""
    return text if len(text) <= _TEXT else text[: _TEXT - _END - 5] + b" ... " + text[-_END:]
