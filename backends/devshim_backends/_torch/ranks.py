"""Sums over the ranks of a job: a gloo process group of PyTorch, on the host.

Requirements of this module:

* The default process group belongs to the program, which may start one. So devshim makes its own groups, without
  ``init_process_group``.
* Gloo and the store of rank 0 have no authentication. Both listen on the address of the rank, and not on every network
  of the host.
* ``torchrun`` has a store at the address of the job, and its ranks use it.

Tensors on cards go through the host: NCCL could not be tried on two cards.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
import torch.distributed as dist

from devshim.contract.rank_engines import RankEngine, RanksBackend, collective_timeout, engine_address
from devshim.contract.rank_rendezvous import wait_for_server

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence

    from devshim.contract.ranks import Place

_ALL = ("sum", "max", "min")
_AT_ONCE = 2  # concurrent sums: the number of gloo's threads
_REALS = ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64")


class TorchRankEngine(RankEngine):
    """The process groups of one rank."""

    name: ClassVar[str] = "gloo"
    right: ClassVar[Mapping[str, Sequence[str]]] = {
        **dict.fromkeys(_REALS, _ALL),
        **dict.fromkeys(("complex64", "complex128"), ("sum",)),
    }
    in_place: ClassVar[bool] = True
    part_bytes: ClassVar[int] = 8 * 2**20  # gloo sends one while the next is filled

    def __init__(self, place: Place) -> None:
        self._timeout = timedelta(seconds=collective_timeout(place))
        self._store = dist.PrefixStore(f"devshim{place.attempt}", _store(place, self._timeout))
        options = dist.ProcessGroupGloo._Options()
        options._timeout = self._timeout
        address = place.addresses[place.rank] if place.addresses else "127.0.0.1" if place.one_host else ""
        device = dist.ProcessGroupGloo.create_device
        options._devices = [device(hostname=address) if address else dist.ProcessGroupGloo.create_default_device()]
        self._gloo: Any = dist.ProcessGroupGloo(dist.PrefixStore("gloo", self._store), place.rank, place.size, options)

    def reduce_flat(self, x: torch.Tensor, op: Literal["sum", "max", "min"]) -> torch.Tensor:
        return self._reduce(x, op) if x.is_cpu is True else x.copy_(self._reduce(x.cpu(), op))

    def reduce_parts(
        self, parts: Iterable[torch.Tensor], op: Literal["sum", "max", "min"]
    ) -> Generator[torch.Tensor, None, None]:
        begun: deque[tuple[Any, torch.Tensor]] = deque()
        try:
            for part in parts:
                begun.append((self._begin(part, op), part))
                if len(begun) == _AT_ONCE:
                    yield self._finish(begun)
            while begun:
                yield self._finish(begun)
        finally:
            for work, _ in begun:  # one has failed, and the others still use their memory
                with suppress(RuntimeError):
                    work.wait()

    def max_ints(self, values: Sequence[int]) -> list[int]:
        found: list[int] = self._reduce(torch.tensor(values, dtype=torch.int32, device="cpu"), "max").tolist()
        return found

    def close(self) -> None:
        self._gloo = self._store = None

    def _reduce(self, x: torch.Tensor, op: str) -> torch.Tensor:
        self._begin(x, op).wait()
        return x

    def _begin(self, x: torch.Tensor, op: str) -> Any:
        options = dist.AllreduceOptions()
        options.reduceOp = getattr(dist.ReduceOp, op.upper())
        options.timeout = self._timeout
        return self._gloo.allreduce([x], options)

    def _finish(self, begun: deque[tuple[Any, torch.Tensor]]) -> torch.Tensor:
        work, part = begun.popleft()
        work.wait()
        return part


class TorchRanks(RanksBackend):
    """Mixin for sums over ranks."""

    def start_ranks(self, place: Place, insists: bool = False) -> RankEngine | None:
        return TorchRankEngine(place) if dist.is_available() and dist.is_gloo_available() else None


def _store(place: Place, timeout: timedelta) -> Any:
    """Return the store that the ranks use to find each other: that of ``torchrun``, or one in rank 0."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        address, port = place.engine_address.rsplit(":", 1)
        return dist.TCPStore(address, int(port), place.size, False, timeout)
    address, number = engine_address(place)
    if place.rank:
        wait_for_server(place)  # PyTorch waits twice as long for a server that does not exist, and prints its C++ stack
        return dist.TCPStore(address, number, place.size, False, timeout)
    listener = socket.create_server((address, number))
    return dist.TCPStore(
        address, number, place.size, True, timeout, wait_for_workers=False, master_listen_fd=listener.detach()
    )
