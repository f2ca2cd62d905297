"""The portable engine: objects travel between ranks through the host, and arrays are added in the order of the ranks.

It needs `Peers`, which carry items between ranks (`devshim.world.ray_peers`), and uses them: it checks that the ranks
make the same call, finds late ranks, and defines the order of additions.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from devshim.contract.rank_engines import collective_timeout
from devshim.errors import RankFailedError, RankLateError, RanksDisagreeError, WorldError
from devshim.world.causes import ONE_ORDER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Literal

    from devshim.contract.ranks import Place
    from devshim.world.steps import Step

Found = dict[int, tuple[str, list[Any]]]
"""Rank -> the call that it reports, and a list of its items, as from `devshim.world.step_store.StepStore.take`."""

__all__ = ["MOST_RANKS", "Found", "Peers", "Portable", "disagreement", "late_error"]

MOST_RANKS = 16
"""With n ranks, each step has n (n - 1) messages of about a millisecond."""
_ADD = {"sum": np.add, "mean": np.add, "max": np.maximum, "min": np.minimum}


class Peers(Protocol):
    """The connection of a rank to the others."""

    def put(self, step: Step, items: dict[str, Any]) -> None:
        """Publish items of this rank for a step."""

    def take(self, step: Step, keys: Mapping[int, str], timeout: float) -> tuple[Found, set[int]]:
        """Return the call and the items of each rank, as `StepStore.take` does, and the ranks that have ended."""


class Portable:
    """The collectives of one rank, computed with its peers.

    Args:
        place: The place of the rank.
        peers: The connection to the others.
    """

    def __init__(self, place: Place, peers: Peers) -> None:
        self._place, self._peers = place, peers
        self.patience: float = collective_timeout(place)
        """The longest wait of a step, in seconds: a launcher that watches the ranks reports earlier, at ``timeout``."""

    def swap(self, step: Step, mine: Any, key: str = "all") -> list[Any]:
        """Send an object to all ranks, and return the objects of all ranks, in order; this rank's is the object itself.

        Raises:
            RanksDisagreeError: A rank does something else in this step.
            RankLateError: A rank has not made this call in time.
            RankFailedError: A rank has ended.
        """
        self._peers.put(step, {key: mine})
        there = self._take(step, dict.fromkeys(self._others(), key))
        return [mine if rank == self._place.rank else there[rank] for rank in range(self._place.size)]

    def hand(self, step: Step, mine: Any, root: int) -> Any:
        """Return the object of one rank; all ranks have received it when the step ends on that rank."""
        if self._place.rank == root:
            self._peers.put(step, {"all": mine})
            self._take(step, dict.fromkeys(self._others(), "received"))
            return mine
        self._peers.put(step, {})
        found = self._take(step, {root: "all"})[root]
        self._peers.put(step, {"received": True})
        return found

    def reduce(self, step: Step, arrays: Sequence[np.ndarray], op: Literal["sum", "mean", "max", "min"]) -> list[Any]:
        """Return the sum, maximum or minimum of flat arrays over all ranks, each in its own dtype; ``mean`` adds.

        Each rank adds one part of every array, in the order of the ranks, and sends it to all. All ranks therefore have
        the same bits, and 2 (n - 1) / n of the bytes leave each rank, as in a ring.
        """
        size, me = self._place.size, self._place.rank
        parts = [[part.copy() for part in np.array_split(array, size)] for array in arrays]
        self._peers.put(step, {f"part {rank}": [each[rank] for each in parts] for rank in range(size) if rank != me})
        there = self._take(step, dict.fromkeys(self._others(), f"part {me}"))
        mine: list[Any] = []
        with np.errstate(all="ignore"):  # NaN and infinity are results like others
            for i, each in enumerate(parts):
                total = (each[me] if me == 0 else there[0][i]).copy()
                for rank in range(1, size):
                    _ADD[op](total, each[me] if rank == me else there[rank][i], out=total)
                mine.append(total)
        totals = self.swap(step, mine, "total")
        return [np.concatenate([total[i] for total in totals]) for i in range(len(arrays))]

    def announce(self, step: Step) -> None:
        """Let the other ranks see that this one is in a step."""
        self._peers.put(step, {"here": True})

    def named(self, step: Step, error: RankFailedError | RankLateError) -> WorldError:
        """Return an engine's error of an announced step, or one that names the ranks, which engines do not know."""
        if error.late if isinstance(error, RankLateError) else error.rank >= 0:
            return error
        try:
            self._take(step, dict.fromkeys(self._others(), "here"), 0.0)
        except RankLateError as found:
            return found if isinstance(error, RankLateError) else error
        except WorldError as found:
            return found
        return error

    def _others(self) -> list[int]:
        return [rank for rank in range(self._place.size) if rank != self._place.rank]

    def _take(self, step: Step, keys: dict[int, str], timeout: float | None = None) -> dict[int, Any]:
        """Return the items of other ranks, or raise the error that explains their absence."""
        left = step.began + self.patience - time.monotonic() if timeout is None else timeout
        found, gone = self._peers.take(step, keys, max(left, 0.0))
        place = self._place
        for rank in sorted(found):
            said, items = found[rank]
            if said and not items:
                raise disagreement(place, step, rank, said)
        if gone:
            ended = place.list_ranks(list(gone))
            msg = f"{ended} ended before step {step.number} ({step.what}) of {place.name_rank(place.rank)}"
            failed = RankFailedError(msg, "see what that rank printed last; every rank must reach each step")
            failed.rank, failed.host = min(gone), place.host_of(min(gone))
            raise failed
        late = [rank for rank in keys if rank not in found or not found[rank][0]]
        if late:
            raise late_error(place, step, late)
        return {rank: items[0] for rank, (_, items) in found.items()}


def disagreement(place: Place, step: Step, other: int, said: str) -> RanksDisagreeError:
    """Return the error for a rank that makes another call than this one in a step."""
    both = {place.rank: step.what, other: said}
    lines = [f"{place.name_rank(rank)}: {what}" for rank, what in sorted(both.items())]  # the same text on both ranks
    msg = f"the ranks do not agree on step {step.number}: {'; '.join(lines)}"
    return RanksDisagreeError(msg, ONE_ORDER)


def late_error(place: Place, step: Step, late: list[int]) -> RankLateError:
    """Return the error for ranks that have not reached a step in time; an empty list if they are unknown."""
    waited = time.monotonic() - step.began
    msg = (
        f"step {step.number} ({step.what}) has waited {waited:.0f} s on {place.name_rank(place.rank)}: "
        f"{place.list_ranks(late) or 'another rank'} {'have' if len(late) > 1 else 'has'} not made this call"
    )
    error = RankLateError(msg, "every rank must make this call; DEVSHIM_TIMEOUT is the time to wait")
    error.waiting, error.late = (place.rank,), tuple(sorted(late))
    return error
