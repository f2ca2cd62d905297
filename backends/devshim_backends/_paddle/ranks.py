"""Sums over the ranks of a job: a gloo process group of PaddlePaddle, on the host.

Requirements of this module:

* The default group belongs to the program. So devshim makes its own group, without ``init_parallel_env``.
* PaddlePaddle's store listens on all addresses of the host, and waits for minutes if a rank never comes. So the ranks
  meet first, and rank 0 then has a store of devshim's at its address (`rank_store`).
* The sum of float16 is infinite in PaddlePaddle 3.3.1, and complex numbers end the process. Both go the portable way.

Tensors on cards go through the host: NCCL could not be tried on two cards.
"""

from __future__ import annotations

import ctypes
import os
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import paddle

from devshim.contract.rank_engines import RankEngine, RanksBackend, collective_timeout, engine_address
from devshim.contract.rank_rendezvous import Rendezvous
from devshim_backends._paddle.devices import core
from devshim_backends._paddle.internals.rank_store import Store

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence

    from devshim.contract.ranks import Place

_ALL = ("sum", "max", "min")
_GROUP = 17  # the number of devshim's group; programs get the numbers from 0 up


class PaddleRankEngine(RankEngine):
    """The process group of one rank."""

    name: ClassVar[str] = "gloo"
    in_place: ClassVar[bool] = True
    part_bytes: ClassVar[int] = 8 * 2**20  # a thread adds one while the next is filled
    right: ClassVar[Mapping[str, Sequence[str]]] = dict.fromkeys(
        ("bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64"), _ALL
    )

    def __init__(self, place: Place) -> None:
        os.environ.setdefault("PADDLE_TRAINER_ID", str(place.rank))  # Paddle's C++ reads it
        address = engine_address(place)[0]
        own = place.addresses[place.rank] if place.addresses else address if place.one_host else ""
        if own.startswith("127."):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        self._server = Store(address, collective_timeout(place)) if place.rank == 0 else None
        rendezvous = Rendezvous(place, self._server and self._server.port)
        with _silence_connecting():
            self._store = core.TCPStore(address, rendezvous.said[0], False, place.size, int(collective_timeout(place)))
            self._group: Any = core.ProcessGroupGloo.create(self._store, place.rank, place.size, _GROUP)
        rendezvous.close()
        self._thread = ThreadPoolExecutor(1, "devshim-sums")

    def reduce_flat(self, x: Any, op: Literal["sum", "max", "min"]) -> Any:
        on_host = x if x.place.is_cpu_place() else x.cpu()
        self._group.all_reduce(on_host, getattr(core.ReduceOp, op.upper()), True).wait()
        return x if on_host is x else on_host._copy_to(x.place, True)

    def reduce_parts(self, parts: Iterable[Any], op: Literal["sum", "max", "min"]) -> Generator[Any, None, None]:
        """Add several parts in a thread, because PaddlePaddle's call returns when its sum is complete.

        The thread does not wait until the result of a part before has been taken: this is slow on two processors.
        """
        rest = iter(parts)
        first = list(islice(rest, 2))
        if len(first) < 2:
            yield from (self.reduce_flat(part, op) for part in first)
            return
        begun: list[Future[Any]] = []
        try:
            for part in chain(first, rest):
                begun.append(self._thread.submit(self.reduce_flat, part, op))
            yield from (each.result() for each in begun)
        finally:
            for each in begun:  # after an error, the part that is being added still uses its memory
                each.cancel()
            wait(begun)

    def max_ints(self, values: Sequence[int]) -> list[int]:
        x = paddle.to_tensor(list(values), dtype="int32", place=paddle.CPUPlace())
        found: list[int] = self.reduce_flat(x, "max").tolist()
        return found

    def close(self) -> None:
        self._thread.shutdown(wait=False)
        self._group = self._store = None
        if self._server is not None:
            self._server.close()


class PaddleRanks(RanksBackend):
    """Mixin for sums over ranks."""

    def start_ranks(self, place: Place, insists: bool = False) -> RankEngine | None:
        return PaddleRankEngine(place)


@contextmanager
def _silence_connecting() -> Iterator[None]:
    """Let Paddle's C++ code not print that it has connected; ``set_flags`` does not know this variable."""
    try:
        level = ctypes.c_int.in_dll(ctypes.CDLL(core.__file__), "_ZN3fLI17FLAGS_minloglevelE")
    except (AttributeError, OSError, ValueError):  # another build
        yield
        return
    before, level.value = level.value, max(level.value, 1)
    try:
        yield
    finally:
        level.value = before
