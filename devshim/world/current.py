"""`world`: the job that this process belongs to."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, Any

from devshim.errors import UnsupportedError
from devshim.registry import current as frameworks
from devshim.registry import tracing
from devshim.registry.processes import is_alive
from devshim.world import heartbeat
from devshim.world.launchers import find_place
from devshim.world.native import requested_engine
from devshim.world.world import World

if TYPE_CHECKING:
    from devshim.contract.ranks import Place
    from devshim.world.portable import Peers

__all__ = ["world"]

_LOCK = threading.Lock()
_world: tuple[int, World] | None = None
"""The process that created the object, and the object; a forked process is not a rank."""
_OWNER = "DEVSHIM_RANK_PROCESS"
"""The variable in which a rank leaves its process and its place to the processes that it starts."""
_HINT = "call ds.world() in the rank; or start the process without RANK and WORLD_SIZE: env={...}"


def world() -> World:
    """Return the ranks of the job that this process belongs to: only itself, if no launcher started several.

    Returns:
        The same object at each call. Its place comes from the environment variables of `devshim.launch`, torchrun,
        srun or mpirun, so that each of them can start the same program. A process that a rank has started with
        multiprocessing is not a rank: there, the size is 1.

    On JAX, and with any framework if the variable ``DEVSHIM_ENGINE`` is ``native``, the first call waits until the
    collectives of the current framework have started on all ranks: choose the framework before, and create tensors
    after.

    Raises:
        ArgumentError: The variables of a launcher contradict each other.
        WorldError: The collectives of the framework did not start.
        UnsupportedError: A rank has started this process by ``subprocess``, with the variables of the rank.
        TracingError: The call is inside a compiled function.

    >>> import devshim as ds
    >>> ds.world().size
    1
    """
    global _world
    tracing.refuse("world", "call it outside, and use its rank and size inside")
    found = _world
    is_new = False
    if found is None or found[0] != os.getpid():
        with _LOCK:
            found = _world
            if found is None:
                _world = found = os.getpid(), World(_own_place(), _peers)
                heartbeat.begin(found[1].steps)
                is_new = True
            elif found[0] != os.getpid():  # a fork: a data loader's process, for example
                _world = found = os.getpid(), World(find_place({}), _peers)
    if is_new and found[1].size > 1 and requested_engine() != "portable" and frameworks.chosen_name() is not None:
        backend = frameworks.current()
        if backend.ranks_start_early or requested_engine() == "native":
            found[1].native.start(backend)
    return found[1]


def _own_place() -> Place:
    """Return the place of this process; alone if a rank has started it with multiprocessing, and none in other ways.

    Such a process, as a worker of a data loader, has the variables of its rank, and runs the program's file again. As a
    second process with the same rank, it would take part in the collectives of the job.

    Raises:
        UnsupportedError: A rank that still runs has started it in another way, such as by ``subprocess``.
    """
    place = find_place(os.environ)
    if place.size == 1:
        return place
    job = f"{place.rank} of {place.size} at {place.engine_address}"
    owner, _, of_owner = os.environ.get(_OWNER, "").partition(" ")
    if of_owner == job and owner != str(os.getpid()):
        if _is_of_multiprocessing():
            return find_place({})
        if is_alive(int(owner)):
            msg = f"this process is not a rank: {place.name_rank(place.rank)} has started it, and left its variables"
            raise UnsupportedError(msg, _HINT)
    os.environ[_OWNER] = f"{os.getpid()} {job}"
    return place


def _is_of_multiprocessing() -> bool:
    process: Any = sys.modules.get("multiprocessing.process")
    if process is None:
        return False
    runs_file = getattr(process.current_process(), "_inheriting", False)  # it has no parent process then (Python 3.14)
    return runs_file or process.parent_process() is not None


def _peers(place: Place) -> Peers:
    from devshim.world.ray_peers import RayPeers

    return RayPeers(place)
