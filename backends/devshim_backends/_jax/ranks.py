"""Sums over the ranks of a job: JAX's distributed runtime, with gloo between CPUs.

Requirements this module answers:

* ``jax.distributed.initialize`` must come before JAX has devices, and their number is fixed for all ranks then. If JAX
  has started, as for simulated GPUs, devshim starts it again while no array is on its devices.
* JAX ends the ranks that are left by SIGABRT if the coordinator in rank 0 ends first. So rank 0 waits until all others
  have shut down or ended: each holds a socket open until then. Watching the ranks is not JAX's task here.
* The coordinator has no authentication, and listens on the address of rank 0 alone.
"""

from __future__ import annotations

import atexit
import secrets
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import jax
import numpy as np
from jax._src import distributed
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from devshim.contract.rank_engines import RankEngine, RanksBackend, engine_address, patience
from devshim_backends._jax import clients, devices

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from devshim.contract.ranks import Place

_ALL = ("sum", "max", "min")
_REDUCE = {"sum": jax.lax.psum, "max": jax.lax.pmax, "min": jax.lax.pmin}
_NEVER = 10**6  # seconds: a job is watched from outside, and JAX's own heartbeat would end the process


class JaxRankEngine(RankEngine):
    """JAX's distributed runtime in one rank.

    Args:
        place: The place of the rank.
    """

    name: ClassVar[str] = "gloo"
    right: ClassVar[Mapping[str, Sequence[str]]] = dict.fromkeys(
        ("bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64"), _ALL
    )

    def __init__(self, place: Place) -> None:
        first = [next(d for d in jax.devices("cpu") if d.process_index == rank) for rank in range(place.size)]
        mesh = Mesh(np.array(first), ("rank",))
        self._place, self._mine = place, first[place.rank]
        self._cut = NamedSharding(mesh, PartitionSpec("rank"))
        self._functions = {op: _reduction(mesh, op) for op in _ALL}
        self._goodbye = _Goodbye(place)
        atexit.register(self.close)

    def reduce_flat(self, x: Any, op: Literal["sum", "max", "min"]) -> Any:
        (device,) = x.devices()
        part = x if device == self._mine else jax.device_put(x, self._mine)
        shape = (self._place.size * x.shape[0],)
        whole = jax.make_array_from_single_device_arrays(shape, self._cut, [part])
        result = self._functions[op](whole).addressable_data(0)
        result.block_until_ready()
        return jax.device_put(result, device)

    def max_ints(self, values: Sequence[int]) -> list[int]:
        x = jax.device_put(np.array(values, "int32"), self._mine)
        found: list[int] = np.asarray(self.reduce_flat(x, "max")).tolist()
        return found

    def close(self) -> None:
        atexit.unregister(self.close)
        goodbye, self._goodbye = self._goodbye, None  # type: ignore[assignment]  # closed
        if goodbye is not None:
            if self._place.rank == 0:
                goodbye.wait()
            with suppress(Exception):  # a rank that was lost makes this fail, which is known by then
                jax.distributed.shutdown()
            goodbye.close()


class _Goodbye:
    """The sockets by which rank 0 knows that the others have shut down, or have ended."""

    def __init__(self, place: Place) -> None:
        client: Any = distributed.global_state.client
        self._patience = patience(place)
        if place.rank:
            where = client.blocking_key_value_get("devshim/goodbye", int(self._patience * 1000))
            address, port, word = where.split()
            self._sockets = [socket.create_connection((address, int(port)), self._patience)]
            self._sockets[0].sendall(word.encode())
            return
        address, word = engine_address(place)[0], secrets.token_hex(8)
        self._sockets = []
        with socket.create_server((address, 0)) as server:
            server.settimeout(self._patience)
            client.key_value_set("devshim/goodbye", f"{address} {server.getsockname()[1]} {word}")
            while len(self._sockets) < place.size - 1:
                peer = server.accept()[0]
                peer.settimeout(self._patience)
                if peer.recv(16, socket.MSG_WAITALL) == word.encode():
                    self._sockets.append(peer)

    def wait(self) -> None:
        """Wait until each of the others has closed its socket, which the system also does when it ends."""
        for peer in self._sockets:
            with suppress(OSError):
                peer.recv(1)

    def close(self) -> None:
        for each in self._sockets:
            each.close()


class JaxRanks(RanksBackend):
    """Mixin for sums over ranks."""

    ranks_on_request: ClassVar[str] = "it must start before the first array"

    def start_ranks(self, place: Place) -> RankEngine | None:
        wanted = len(clients.cpu_devices()) if clients.started() else 0
        if wanted:
            self._stop_devices()  # type: ignore[attr-defined]  # the backend's
        address, port = engine_address(place)
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        with suppress(AttributeError):  # before JAX 0.7
            jax.config.update("jax_enable_recoverability", True)
        jax.distributed.initialize(
            f"{address}:{port}",
            place.size,
            place.rank,
            coordinator_bind_address=None if place.rank else f"{address}:{port}",
            initialization_timeout=max(1, int(patience(place))),
            heartbeat_timeout_seconds=_NEVER,
        )
        if wanted:
            self._start_devices(wanted)  # type: ignore[attr-defined]  # the backend's
            devices.DEVICES.clear()
            if self.simulated:  # type: ignore[attr-defined]  # the backend's
                self._count_on_devices()  # type: ignore[attr-defined]  # the backend's
        return JaxRankEngine(place)


def _reduction(mesh: Mesh, op: str) -> Any:
    """Return the compiled function that reduces an array that is cut over the ranks."""

    def reduce(part: Any) -> Any:
        return _REDUCE[op](part, "rank")

    mapped = jax.shard_map(reduce, mesh=mesh, in_specs=PartitionSpec("rank"), out_specs=PartitionSpec())
    return jax.jit(mapped)
