"""The contract for sums over the ranks of a job by the framework's own collectives.

An adapter that has them implements `RanksBackend` in ``ranks.py``. A backend without them declares the gap ``ranks``,
and `devshim.world` computes all of its sums the portable way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from devshim.errors import ArgumentError

if TYPE_CHECKING:
    from devshim.contract.ranks import Place

__all__ = ["RankEngine", "RanksBackend", "collective_timeout", "engine_address"]


class RankEngine(ABC):
    """The collectives of one framework, between the ranks of one job.

    Attributes:
        name: The name of the engine, such as ``"gloo"``.
        right: The operations that gave the right answer for random values on the host: dtype -> the operations. Values
            of tensors on GPUs are added on the host, too.
        keeps_nan: True if the maximum and minimum were seen to be NaN wherever the value of some rank is. If not,
            `devshim.world.nans` marks these places.
        takes_whole: True if `reduce_flat` takes tensors of every shape on the host, and does not change them.
        in_place: True if the sum of one tensor on the host may be computed in its own memory: to assign the tensor to
            itself afterwards copies nothing, and tells the framework what any assignment tells it.
        part_bytes: How many bytes `reduce_parts` takes at a time, if the engine works on several parts; 0 for all.
    """

    name: ClassVar[str]
    right: ClassVar[Mapping[str, Sequence[str]]]
    keeps_nan: ClassVar[bool] = False
    takes_whole: ClassVar[bool] = False
    in_place: ClassVar[bool] = False
    part_bytes: ClassVar[int] = 0

    def is_right(self, dtype: str, op: str) -> bool:
        """Return True if the engine was seen to compute an operation, such as ``"sum"``, correctly for a dtype."""
        return op in self.right.get(dtype, ())

    @abstractmethod
    def reduce_flat(self, x: Any, op: Literal["sum", "max", "min"]) -> Any:
        """Return the sum, maximum or minimum of flat tensors over all ranks, on the device of ``x``.

        The engine may write the result into the memory of ``x``, which the caller no longer needs. Errors are the
        framework's own.
        """

    def reduce_parts(self, parts: Iterable[Any], op: Literal["sum", "max", "min"]) -> Generator[Any, None, None]:
        """Return the results of `reduce_flat` for flat tensors on the host, one after another.

        An engine that can work on several at the same time asks for the next before it returns the first.
        """
        for part in parts:
            yield self.reduce_flat(part, op)

    @abstractmethod
    def max_ints(self, values: Sequence[int]) -> list[int]:
        """Return the elementwise maximum of int32 values over all ranks."""

    @abstractmethod
    def close(self) -> None:
        """End the engine. A second call does nothing; the call does not wait for ranks that have ended."""


class RanksBackend:
    """The mixin of `Backend` for sums over the ranks of a job.

    Attributes:
        ranks_on_request: Why the engine starts only where ``DEVSHIM_ENGINE=native`` asks for it; empty if it always
            does.
        ranks_start_early: True if the engine must start before the first tensor; then `devshim.world` starts it.
    """

    ranks_on_request: ClassVar[str] = ""
    ranks_start_early: ClassVar[bool] = False

    def start_ranks(self, place: Place, insists: bool = False) -> RankEngine | None:
        """Start the framework's collectives between the ranks of a job; None if the framework has none.

        Call it once in a process, and before the framework has devices; simulated GPUs that the environment asks for
        start in the right order. Other errors are the framework's own.

        Args:
            place: The place of this rank.
            insists: True if the environment requests the engine, even if it was not tested.

        Raises:
            AlreadyStartedError: It cannot start in some rank, which says why; every rank raises this then.
            AbsentError: A rank did not arrive in time (`devshim.contract.rank_rendezvous`).
        """
        return None


def engine_address(place: Place) -> tuple[str, int]:
    """Return where rank 0 listens: an address, and a port that the launcher does not use itself.

    Raises:
        ArgumentError: The launcher names no address.
    """
    address, _, port = place.engine_address.rpartition(":")
    if not address or not port.isdecimal():
        msg = "the launcher names no address where rank 0 may listen"
        raise ArgumentError(msg, "set MASTER_ADDR to the address of rank 0, and MASTER_PORT to a free port there")
    return address, int(port) + (place.launcher == "torchrun")


def collective_timeout(place: Place) -> float:
    """Return how long a collective of the engine waits, in seconds: longer than a launcher that watches the ranks."""
    return 1.5 * place.timeout + 5
