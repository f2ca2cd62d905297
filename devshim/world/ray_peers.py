"""The connection between ranks by Ray: small items travel in a message, large ones through the hosts' object store.

Each rank puts its items into a store, which is an actor: the agent of its host, or, if another launcher started the
rank, one that the rank starts itself.
"""

from __future__ import annotations

import atexit
import os
import time
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from devshim.contract.rank_engines import collective_timeout
from devshim.errors import UnsupportedError
from devshim.world import ray_start
from devshim.world.cluster import find_token, restore_sigterm
from devshim.world.portable import MOST_RANKS
from devshim.world.reaching import require_cluster, unconnected_error
from devshim.world.step_store import StepStore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devshim.contract.ranks import Place
    from devshim.world.portable import Found
    from devshim.world.steps import Step

__all__ = ["RayPeers"]

_SMALL = 64 * 1024
"""Items below this many bytes travel in the message itself."""
_CONNECTING = 60.0
_OF_LAUNCHER, _JOB = "DEVSHIM_RAY", "DEVSHIM_JOB"  # `devshim.registry.environment.OF_RANKS`


class RayPeers:
    """The other ranks of a job.

    Args:
        place: The place of this rank.

    Raises:
        UnsupportedError: Ray is not installed, there are too many ranks, the hosts share no Ray cluster, or
            the launcher does not say whether there are several hosts.
        ArgumentError: There is no token for the Ray cluster that they share.
        WorldError: The cluster does not answer.
        RankLateError: Other ranks did not connect in time.
    """

    def __init__(self, place: Place) -> None:
        if place.size > MOST_RANKS:
            msg = f"the portable engine connects at most {MOST_RANKS} ranks, and this job has {place.size}"
            raise UnsupportedError(
                msg, "each sum has n * (n - 1) messages of about a millisecond: use the framework's engine"
            )
        self._place = place
        self._kept: list[Any] = []  # the items of the last steps: other ranks may still be reading them
        self._ray = self._connect()
        try:
            self._own = self._start_store()
            self._stores = self._find_stores()
            first = [store.take.remote(rank, 0, "", "", 0.0) for rank, store in self._stores.items()]
            self._ray.wait(first, num_returns=len(first), timeout=_CONNECTING)  # Ray connects in the first call
        except BaseException:
            self._ray.shutdown()  # otherwise the next call would find Ray started, and fail for that reason
            raise

    def put(self, step: Step, items: dict[str, Any]) -> None:
        """Publish items of this rank for a step."""
        items = {key: self._pack(value) for key, value in items.items()}
        self._kept = [*self._kept[-7:], items]
        self._stores[self._place.rank].put.remote(self._place.rank, step.number, step.what, items)

    def take(
        self, step: Step, keys: Mapping[int, str], timeout: float
    ) -> tuple[dict[int, tuple[str, list[Any]]], set[int]]:
        """Return the call and the items of each rank, and the ranks that have ended."""
        asked = {
            self._stores[rank].take.remote(rank, step.number, key, step.what, timeout): rank
            for rank, key in keys.items()
        }
        found: Found = {}
        gone = set()
        until = time.monotonic() + timeout + 1
        left = list(asked)
        while left:
            ready, left = self._ray.wait(left, timeout=max(until - time.monotonic(), 0))
            if not ready:
                break
            for each in ready:
                try:
                    said, items = self._ray.get(each)
                    found[asked[each]] = said, [self._unpack(item, timeout) for item in items]
                except self._ray.exceptions.RaySystemError as error:
                    if isinstance(error.client_exc, Exception):  # a signal handler of the program raised it in Ray
                        raise error.client_exc from error
                    raise
                except self._ray.exceptions.RayError:
                    gone.add(asked[each])
            if gone:
                break
        return found, gone

    def close(self) -> None:
        """Wait until the other ranks have read the items of this one, and disconnect."""
        if self._place.rank == 0 and self._own:
            with suppress(Exception):
                ends = [self._stores[0].take.remote(rank, -1, "end", "end", 10.0) for rank in range(self._place.size)]
                self._stores[0].put.remote(0, -1, "end", {"end": True})
                self._ray.wait(ends, num_returns=len(ends), timeout=10)
        elif self._own:
            with suppress(Exception):
                self._ray.get(self._stores[0].put.remote(self._place.rank, -1, "end", {"end": True}), timeout=5)

    def _pack(self, value: Any) -> Any:
        arrays = value if isinstance(value, list) else [value]
        nbytes = sum(each.nbytes for each in arrays if isinstance(each, np.ndarray))
        return (False, value) if nbytes < _SMALL else (True, [self._ray.put(value)])

    def _unpack(self, item: tuple[bool, Any], timeout: float) -> Any:
        is_stored, value = item
        return self._ray.get(value[0], timeout=timeout + 5) if is_stored else value

    def _name(self, rank: int) -> str:
        if self._place.launcher == "devshim":
            return f"host{list(dict.fromkeys(self._place.hosts)).index(self._place.hosts[rank])}"
        return f"rank{rank}"

    def _connect(self) -> Any:
        """Connect to Ray, and return its module."""
        place = self._place
        quiet = {"log_to_driver": False, "logging_level": 50}
        address = os.environ.get(_OF_LAUNCHER) or os.environ.get("DEVSHIM_RAY_ADDRESS")
        if not address and place.one_host:
            from devshim.world import local_ray

            _require_ray(place)  # in each rank: otherwise the others would wait for the one that starts Ray
            return local_ray.join(lambda: _import_ray(place), place, quiet)
        if not address:
            raise _without_cluster(place)
        if _JOB not in os.environ:  # devshim's own launcher has set what Ray needs, and names a host that is lost
            token = find_token(address)
            os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=str(token))
            require_cluster(address, place.timeout, token)
        ray = _import_ray(place)
        # Without this, Ray would wait for half a second at the end, to show the output of its own processes.
        atexit.register(ray.shutdown)
        own = {"_node_ip_address": place.addresses[place.rank]} if place.addresses else {}
        job = os.environ.get(_JOB) or f"devshim-{place.engine_address}"
        with restore_sigterm():
            ray_start.init(address=address, namespace=job, **own, **quiet)
        return ray

    def _start_store(self) -> bool:
        """Start the store of this rank; return False if the agent of its host is the store."""
        if self._place.launcher == "devshim":
            return False
        actor = self._ray.remote(num_cpus=0, max_concurrency=2 * MOST_RANKS)(StepStore)
        self._actor = actor.options(name=self._name(self._place.rank)).remote()
        atexit.register(self.close)
        return True

    def _find_stores(self) -> dict[int, Any]:
        """Return the store of each rank, once all are there."""
        began = time.monotonic()
        found: dict[int, Any] = {}
        while True:
            for rank in set(range(self._place.size)) - set(found):
                with suppress(ValueError):
                    found[rank] = self._ray.get_actor(self._name(rank))
            late = [rank for rank in range(self._place.size) if rank not in found]
            if not late:
                return found
            if time.monotonic() - began > collective_timeout(self._place):
                raise unconnected_error(self._place, began, late)
            time.sleep(0.05)


def _without_cluster(place: Place) -> UnsupportedError:
    """Return the error of ranks that are on several hosts, or of which that is unknown, and that share no cluster."""
    start = "start a cluster with 'devshim cluster start', and set DEVSHIM_RAY_ADDRESS"
    if not place.host_variable:
        return UnsupportedError("the ranks are on several hosts, and these share no Ray cluster", start)
    msg = f"the variables of {place.name_rank(place.rank)} do not say whether all {place.size} ranks are on one host"
    return UnsupportedError(msg, f"set {place.host_variable} in each rank if they are; otherwise {start}")


def _require_ray(place: Place) -> None:
    if find_spec("ray") is None:
        msg = f"{place.size} ranks exchange tensors by Ray here, and it is not installed"
        raise UnsupportedError(
            msg, 'pip install "devshim[ray]"; print(ds.world().describe()) says which sums do not need Ray'
        )


def _import_ray(place: Place) -> Any:
    _require_ray(place)
    if place.one_host:
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # listen on 127.0.0.1, and not on all addresses
    os.environ.setdefault("RAY_worker_niceness", "0")  # otherwise the processes with tensors have the lowest priority
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # do not change the variables of GPUs
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")  # under `uv run`: no copies of the working directory
    import ray

    return ray
