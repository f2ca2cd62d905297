"""Sums over the ranks of a job: JAX's distributed runtime, with gloo between CPUs.

Requirements of this module:

* ``jax.distributed.initialize`` must come before JAX has devices, and their number is fixed for all ranks then. If JAX
  has started, as for simulated GPUs, devshim starts it again while no array is on its devices.
* JAX ends a rank by SIGABRT if another one never comes to the start. So the ranks meet first, and start only if all
  are there, and if none has arrays already.
* JAX ends the ranks that are left by SIGABRT if the coordinator in rank 0 ends first. So rank 0 waits until all others
  have shut down or ended: each holds a socket of the rendezvous open until then. Its heartbeat is off.
* gloo prints a line to standard output when it connects. It connects at the start, while standard output is standard
  error: what a rank prints is its program's.
* The coordinator has no authentication, and listens only on the address of rank 0.
"""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import contextmanager, suppress
from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import jax
import numpy as np
from jax._src import distributed
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from devshim.contract.rank_engines import RankEngine, RanksBackend, collective_timeout, engine_address
from devshim.contract.rank_rendezvous import Rendezvous
from devshim.errors import AlreadyStartedError
from devshim_backends._jax import devices
from devshim_backends._jax.internals import clients

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from devshim.contract.ranks import Place

_ALL = ("sum", "max", "min")
_REDUCE = {"sum": jax.lax.psum, "max": jax.lax.pmax, "min": jax.lax.pmin}
_NEVER = 10**6  # seconds: a job is watched from outside, and JAX's own heartbeat would end the process
_HEARTBEAT = "heartbeat_timeout_seconds"
_OPTIONS: dict[str, Any] = (
    {_HEARTBEAT: _NEVER} if _HEARTBEAT in signature(jax.distributed.initialize).parameters else {}
)
"""Before JAX 0.7, a rank that does not answer for 100 seconds ends the others."""


class JaxRankEngine(RankEngine):
    """JAX's distributed runtime in one rank.

    Args:
        place: The place of the rank.
        rendezvous: The sockets that tell rank 0 when the others have shut down, or have ended.
    """

    name: ClassVar[str] = "gloo"
    takes_whole: ClassVar[bool] = True
    right: ClassVar[Mapping[str, Sequence[str]]] = {
        **dict.fromkeys(("bfloat16", "float32", "float64"), _ALL),
        **dict.fromkeys(("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"), _ALL),
        **dict.fromkeys(("complex64", "complex128"), ("sum",)),
    }

    def __init__(self, place: Place, rendezvous: Rendezvous) -> None:
        natives = clients.devices_of_all_processes()
        first = [next(d for d in natives if d.process_index == rank) for rank in range(place.size)]
        mesh = Mesh(np.array(first), ("rank",))
        self._place, self._mine = place, first[place.rank]
        self._cut = NamedSharding(mesh, PartitionSpec("rank"))
        self._functions = {op: _reduction(mesh, op) for op in _ALL}
        self._rendezvous: Rendezvous | None = rendezvous
        atexit.register(self.close)
        with _redirect_stdout_to_stderr():
            self.max_ints([0])

    def reduce_flat(self, x: Any, op: Literal["sum", "max", "min"]) -> Any:
        (device,) = x.devices()
        part = x if device == self._mine else jax.device_put(x, self._mine)
        rows = part if part.ndim else part.reshape(1)
        shape = (self._place.size * rows.shape[0], *rows.shape[1:])
        whole = jax.make_array_from_single_device_arrays(shape, self._cut, [rows])
        result = self._functions[op](whole).addressable_data(0)
        result.block_until_ready()
        return jax.device_put(result if part.ndim else result.reshape(()), device)

    def max_ints(self, values: Sequence[int]) -> list[int]:
        x = jax.device_put(np.array(values, "int32"), self._mine)
        found: list[int] = jax.device_get(self.reduce_flat(x, "max")).tolist()
        return found

    def close(self) -> None:
        atexit.unregister(self.close)
        rendezvous, self._rendezvous = self._rendezvous, None
        if rendezvous is not None:
            if self._place.rank == 0:
                rendezvous.wait()
            with suppress(Exception):  # a rank that was lost makes this fail, which is known by then
                jax.distributed.shutdown()
            rendezvous.close()


@contextmanager
def _redirect_stdout_to_stderr() -> Iterator[None]:
    """Send what this process prints in the block to standard error, that of C++ code included."""
    if sys.stdout is not None:
        sys.stdout.flush()
    try:
        own = os.dup(1)
    except OSError:  # it is closed
        yield
        return
    try:
        with suppress(OSError):
            os.dup2(2, 1)
        yield
    finally:
        os.dup2(own, 1)
        os.close(own)


class JaxRanks(RanksBackend):
    """Mixin for sums over ranks."""

    ranks_start_early: ClassVar[bool] = True

    def start_ranks(self, place: Place, insists: bool = False) -> RankEngine | None:
        rendezvous = Rendezvous(place, self._why_not(insists))
        why = next(filter(None, rendezvous.said), "")
        if why:
            rendezvous.close()
            msg = f"JAX cannot start together with the other ranks: {why}"
            raise AlreadyStartedError(msg, "call ds.world() after ds.use and before the first JAX array")
        had_started = clients.started()
        if had_started:
            self._stop_devices()  # type: ignore[attr-defined]  # the backend's
        address, port = engine_address(place)
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        with suppress(AttributeError):  # before JAX 0.8
            jax.config.update("jax_enable_recoverability", True)
        jax.distributed.initialize(
            f"{address}:{port}",
            place.size,
            place.rank,
            coordinator_bind_address=None if place.rank else f"{address}:{port}",
            initialization_timeout=max(1, int(collective_timeout(place))),
            **_OPTIONS,
        )
        if had_started:
            self._start_devices(self.simulated)  # type: ignore[attr-defined]  # the backend's
            devices.DEVICES.clear()
            if self.simulated:  # type: ignore[attr-defined]  # the backend's
                self.count_on_devices()  # type: ignore[attr-defined]  # the backend's
        return JaxRankEngine(place, rendezvous)

    def _why_not(self, insists: bool) -> str:
        """Return why this rank cannot start its devices together with the others; empty if it can."""
        if distributed.global_state.client is not None:
            return "the program has called jax.distributed.initialize"
        if not insists and not self.simulated and self.count("gpu"):  # type: ignore[attr-defined]  # the backend's
            return "it has GPUs, and was not tested with them; DEVSHIM_ENGINE=native starts it anyway"
        reason: str = self._why_devices_stay() if clients.started() else ""  # type: ignore[attr-defined]
        return reason


def _reduction(mesh: Mesh, op: str) -> Any:
    """Return the compiled function that reduces an array that is cut over the ranks."""

    def reduce(part: Any) -> Any:
        return _REDUCE[op](part, "rank")

    mapped = jax.shard_map(reduce, mesh=mesh, in_specs=PartitionSpec("rank"), out_specs=PartitionSpec())
    return jax.jit(mapped)
