"""`World`: the ranks of a job, as a program sees them."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from devshim.collectives.all_reduce import reduce_in_place
from devshim.collectives.arguments import split_bounds
from devshim.errors import ArgumentError, UnsupportedError
from devshim.errors.formatting import list_some
from devshim.errors.messages import bad_argument
from devshim.registry import tracing
from devshim.runtime import queries
from devshim.runtime.local_gpu import local_gpu
from devshim.world import trees
from devshim.world.native import Native
from devshim.world.parcels import Parcel, unwrap
from devshim.world.portable import Portable
from devshim.world.steps import Steps
from devshim.world.sums import Sums, record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Literal

    from devshim.contract.ranks import Place
    from devshim.devices.device import Device
    from devshim.world.portable import Peers
    from devshim.world.steps import Step

T = TypeVar("T")

_OWN_THREADS = ("devshim-parallel-", "devshim-prefetch")
"""The name prefixes of threads that run the user's functions for `devshim.parallel` and `devshim.prefetch`."""

__all__ = ["World"]


class World:
    """The processes of a job, which `devshim.world` returns: one, if no launcher started several.

    With one rank, each method has the result of one process, and starts nothing. All ranks must call the same methods
    in the same order; if a rank does something else, ends or is too late, the error names it. Therefore only one thread
    at a time may call them, and no thread of `devshim.parallel` or `devshim.prefetch` may.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> world = ds.world()  # a process without a launcher
        >>> world.rank, world.size
        (0, 1)
        >>> [total] = world.all_reduce_([ds.ones(2)])
        >>> total
        array([1., 1.])
    """

    def __init__(self, place: Place, peers: Callable[[Place], Peers]) -> None:
        self._place, self._peers = place, peers
        self.steps: Steps = Steps()
        """The calls that this rank has started, for the agent that watches it."""
        self.native: Native = Native(place, self.steps)
        """The framework's own engine, if it is used; the first sum starts it, or `devshim.world`."""
        self._portable: Portable | None = None
        self._sums = Sums(place, self.steps, self.native, self._engine)

    @property
    def rank(self) -> int:
        """The number of this process, from 0."""
        return self._place.rank

    @property
    def size(self) -> int:
        """The number of processes in the job."""
        return self._place.size

    @property
    def local_rank(self) -> int:
        """The number of this process among those of its host."""
        return self._place.local_rank

    @property
    def attempt(self) -> int:
        """The number of times that the job was started again after a failure."""
        return self._place.attempt

    @property
    def hosts(self) -> tuple[str, ...]:
        """The name of each rank's host; empty if the launcher does not say."""
        return self._place.hosts

    @property
    def host(self) -> str:
        """The name of this rank's host; empty if the launcher does not say."""
        return self._place.host_of(self.rank)

    @property
    def devices(self) -> list[Device]:
        """The GPUs of this rank, or the CPU.

        A rank of `devshim.launch`, and a process without a launcher, has all GPUs that it sees. A rank of another
        launcher has the GPU that `devshim.local_gpu` names.
        """
        if self.size == 1 or self._place.launcher == "devshim":
            return queries.try_all_gpus()
        return [local_gpu()]

    def __repr__(self) -> str:
        return f"<World: rank {self.rank} of {self.size}{f' on {self.host}' if self.host else ''}>"

    def describe(self) -> str:
        """Return a description of the job for people: this rank, its devices, and the engine that adds its tensors.

        >>> import devshim as ds
        >>> print(ds.world().describe().splitlines()[0].partition(" on ")[0])
        rank 0 of 1
        """
        place = self._place
        lines = [f"rank {place.rank} of {place.size}{f' on {self.host}' if self.host else ''}"]
        if place.size > 1:
            by = ", started by devshim" if place.launcher == "devshim" else f", from the variables of {place.launcher}"
            lines[0] += by + (f", attempt {place.attempt}" if place.attempt else "")
            hosts = list_some(list(dict.fromkeys(place.hosts)), 4) or "the launcher does not say"
            lines.append(f"hosts: {hosts}; a collective waits {place.timeout:g} s")
        lines.append(f"devices: {', '.join(map(str, self.devices))}")
        if place.size > 1:
            lines.append(f"sums: {self.native.describe()}")
        return "\n".join(lines)

    def part(self, length: int) -> slice:
        """Return this rank's slice of ``length`` rows: sizes differ by at most one, and larger ones come first.

        >>> import devshim as ds
        >>> ds.world().part(10)
        slice(0, 10, None)
        """
        if type(length) is not int or length < 0:
            raise bad_argument("length", length, "a number of rows", "world.part(len(inputs))")
        return slice(*split_bounds(length, self.size, "balance")[self.rank])

    def all_reduce_(self, tensors: list[T], op: Literal["sum", "mean", "max", "min"] = "sum") -> list[T]:
        """Replace every tensor with the sum, mean, maximum or minimum over all ranks, in place.

        Args:
            tensors: As for `devshim.all_reduce_`: a list with a tensor, or a tree of tensors, for each device of this
                rank. Ranks may have different numbers of devices.
            op: ``"sum"``, ``"mean"``, ``"max"`` or ``"min"``. The mean is taken over all devices of all ranks.

        Returns:
            The list given, with the same bits on every rank, as from `devshim.all_reduce_`. Use this list: if the
            framework's tensors cannot be written (TensorFlow, JAX), the tensors that were in it have not changed.

        Raises:
            ArgumentError: As for `devshim.all_reduce_`.
            RanksDisagreeError: A rank makes another call, or has other shapes or dtypes.
            RankLateError: A rank did not make the call in time.
            RankFailedError: A rank has ended. After this and any other error, nothing has changed.
        """
        if self.size == 1:
            return reduce_in_place(tensors, op)
        _require_order("all_reduce_")
        with self.steps.alone("world.all_reduce_"):
            return reduce_in_place(tensors, op, lambda groups: self._sums.reduce(groups, op, len(tensors)))

    def broadcast(self, tree: T, root: int = 0) -> T:
        """Return the tree of one rank, on every rank.

        Args:
            tree: Tensors, numbers, text, and trees of them. On the other ranks: a tree with the same number of tensors,
                whose devices the new ones get; or None, and they are put on the default device. Models in it receive
                the parameters and buffers in place, and must be there on all ranks.
            root: The rank that has the values.

        Raises:
            ArgumentError: ``root`` is not a rank, the trees do not have the same models, an array of Python objects
                contains tensors or models, or a value cannot be pickled and unpickled.
            RanksDisagreeError: A rank makes another call.
            RankLateError: A rank did not make the call in time.
            RankFailedError: A rank has ended.
        """
        if type(root) is not int or not 0 <= root < self.size:
            msg = f"world.broadcast found no rank {root!r} among {self.size}"
            raise ArgumentError(msg, "ranks are numbered from 0; root=0 is the first")
        if self.size == 1:
            return tree
        _require_order("broadcast")
        start = time.perf_counter()
        with self._exchange(f"broadcast from rank {root}") as (step, engine):
            if self.rank == root:
                found = Parcel("world.broadcast", lambda: trees.pack(tree)).send(
                    lambda content: engine.hand(step, content, root)
                )
            else:
                found = engine.hand(step, None, root)
        made = tree if self.rank == root else trees.unpack(unwrap(found, self._place, root, step), tree)
        record(trees.tensors_in(made), self.size - 1 if self.rank == root else 0, start, step.what, self.size)
        return made

    def all_gather(self, tree: T) -> list[T]:
        """Return the trees of all ranks, in the order of the ranks; their shapes may differ.

        Args:
            tree: Tensors, numbers, text, and trees of them. The tensors of other ranks are put on the devices of this
                rank's tensors if its tree has the same number of them, and otherwise on the default device.

        Raises:
            ArgumentError: The tree contains a model, an array of Python objects with tensors or models, or a value that
                cannot be pickled and unpickled. All ranks raise the error of the first rank that cannot send its tree.
            RanksDisagreeError: A rank makes another call.
            RankLateError: A rank did not make the call in time.
            RankFailedError: A rank has ended.
        """
        return self.gather_for("all_gather", tree)

    def gather_for(self, call: str, tree: T) -> list[T]:
        """Return the trees of all ranks, as `all_gather` does, as a part of another call, such as ``ds.save``.

        Args:
            call: The call; a rank that makes another one disagrees.
            tree: As for `all_gather`.

        Raises:
            ArgumentError: As for `all_gather`.
            RanksDisagreeError: A rank makes another call.
            RankLateError: A rank did not make the call in time.
            RankFailedError: A rank has ended.
        """
        if self.size == 1:
            return [tree]
        _require_order(call)
        start = time.perf_counter()
        with self._exchange(call) as (step, engine):
            mine = Parcel(_public_name(call), lambda: trees.pack(tree, models=False))
            found = mine.send(lambda content: engine.swap(step, content))
        others = {rank: unwrap(each, self._place, rank, step) for rank, each in enumerate(found) if rank != self.rank}
        record(trees.tensors_in(tree), self.size - 1, start, step.what, self.size)
        return [trees.unpack(others[rank], tree) if rank in others else tree for rank in range(self.size)]

    def barrier(self) -> None:
        """Wait until all ranks are here.

        Raises:
            RanksDisagreeError: A rank makes another call.
            RankLateError: A rank did not arrive in time.
            RankFailedError: A rank has ended.
        """
        if self.size > 1:
            _require_order("barrier")
            with self._exchange("barrier") as (step, engine):
                engine.swap(step, None)

    @contextmanager
    def _exchange(self, what: str) -> Iterator[tuple[Step, Portable]]:
        """Run a block as a step without a sum.

        Other ranks may be in a sum, so the ranks compare their calls by the engine that adds tensors. They do so before
        a rank connects, for which it waits for all.
        """
        with self.steps.alone(_public_name(what)):
            is_native = self.native.start_any()
            engine = None if is_native else self._engine()
            with self.steps.step(what) as step:
                if engine is None:
                    self._sums.agree_without(step, self._portable)
                    engine = self._engine()
                yield self.steps.doing or step, engine

    def _engine(self) -> Portable:
        """Return the portable engine, connected; connecting does not count towards the time of a step."""
        if self._portable is None:
            with self.steps.pause():
                self._portable = Portable(self._place, self._peers(self._place))
        return self._portable


def _public_name(call: str) -> str:
    """Return a call as the program writes it; ``ds.save`` and ``ds.load`` are given in full."""
    return call if call.startswith("ds.") else f"world.{call}"


def _require_order(call: str) -> None:
    """Refuse a call where the order of calls may differ between ranks, or where a compiler records it.

    Raises:
        TracingError: The call is inside a compiled function.
        UnsupportedError: It is in a thread that devshim has started.
    """
    name = _public_name(call)
    tracing.refuse(name, "call it outside, with the results of the compiled function")
    if threading.current_thread().name.startswith(_OWN_THREADS):
        msg = f"{name} was called in a thread of ds.parallel or ds.prefetch, whose order can differ between ranks"
        raise UnsupportedError(msg, "return the values, and call it after ds.parallel, with one tree for each device")
