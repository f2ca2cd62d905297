"""The messages of the ranks of a job in a save or load: facts as JSON, and the first error of any rank.

Requirements of this module:

* A rank that fails still takes part in the exchange, so that its peers do not wait: each of them raises an error that
  names the rank, its host and the cause.
* A rank's own error is raised unchanged on that rank.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from devshim.checkpoints.paths import make_error
from devshim.errors import CheckpointError, DevshimError

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.checkpoints.rows import Ranks

__all__ = ["Readiness", "gather_results"]

_LONGEST = 2000
"""Characters of an error's text that are sent to the other ranks."""


def gather_results(world: Ranks, call: str, work: Callable[[], Any]) -> list[Any]:
    """Run a function, and return its results on all ranks, in their order.

    Args:
        world: The ranks.
        call: The public call, such as ``"ds.save"``: all ranks must make the same.
        work: Returns anything that is JSON.

    Raises:
        CheckpointError: The function raised an error on another rank; for an error of the system, it is an `OSError`,
            too.
    """
    error: BaseException | None = None
    facts = None
    try:
        facts = work()
    except BaseException as own:  # an interrupt, too: the peers must not wait for this rank
        error = own
    if error is not None:
        _report(world, call, error)
        raise error
    every = _exchange(world, call, {"facts": facts})
    failed = [(rank, each) for rank, each in enumerate(every) if "error" in each]
    if failed:
        rank, each = failed[0]
        msg = f"{call} failed on rank {rank} on {each['host']}: {each['error']}"
        hint = each["hint"] or f"see the error of rank {rank}; nothing has changed"
        number = each["number"]
        raise (
            CheckpointError(msg, hint)
            if number is None
            else make_error(msg, hint, number, os.strerror(number), each["path"])
        )
    return [each["facts"] for each in every]


class Readiness:
    """The agreement before the result of a load is used: all ranks have everything, or no rank changes anything."""

    def __init__(self, world: Ranks) -> None:
        self._world = world
        self._reported = False

    def wait_until_ready(self) -> None:
        """Wait until every rank has everything.

        Raises:
            CheckpointError: Another rank failed.
        """
        self._reported = True
        gather_results(self._world, "ds.load", lambda: None)

    def report_failure(self, error: BaseException) -> None:
        """Report an error of this rank to its peers, which wait in `wait_until_ready`."""
        if not self._reported:
            self._reported = True
            _report(self._world, "ds.load", error)


def _report(world: Ranks, call: str, error: BaseException) -> None:
    """Take part in an exchange with an error; a second error there would hide the first."""
    problem = error.problem if isinstance(error, DevshimError) else str(error)
    text = f"{type(error).__name__}: {problem}"[:_LONGEST]
    hint = error.hint if isinstance(error, DevshimError) else ""
    words: dict[str, Any] = {"error": text, "hint": hint or "", "host": str(world.host), "number": None}
    if isinstance(error, OSError) and error.errno is not None:
        words |= {"number": error.errno, "path": str(error.filename)}
    with suppress(Exception):
        _exchange(world, call, words)


def _exchange(world: Ranks, call: str, words: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the words of every rank."""
    mine = np.frombuffer(json.dumps(words).encode(), np.uint8).copy()
    return [json.loads(np.asarray(each, np.uint8).tobytes()) for each in world.gather_for(call, mine)]
