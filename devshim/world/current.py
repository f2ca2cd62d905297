"""`world`: the job that this process belongs to."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from devshim.registry import tracing
from devshim.world import pulse
from devshim.world.launchers import found_place
from devshim.world.world import World

if TYPE_CHECKING:
    from devshim.contract.ranks import Place
    from devshim.world.portable import Peers

__all__ = ["world"]

_LOCK = threading.Lock()
_world: tuple[int, World] | None = None
"""The process for which it was made, and the object: a forked process is not a rank."""


def world() -> World:
    """Return the ranks of the job that this process belongs to: itself alone, if nothing launched several.

    Returns:
        The same object at each call. Its place comes from the environment variables of `devshim.launch`, torchrun,
        srun or mpirun, so that each of them can start the same program.

    Raises:
        ArgumentError: The variables of a launcher contradict each other.
        TracingError: The call is inside a compiled function.

    >>> import devshim as ds
    >>> ds.world().size
    1
    """
    global _world
    tracing.refuse("world", "call it outside, and use its rank and size inside")
    found = _world
    if found is None or found[0] != os.getpid():
        with _LOCK:
            found = _world
            if found is None:
                _world = found = os.getpid(), World(found_place(os.environ), _peers)
                pulse.begin(found[1].steps)
            elif found[0] != os.getpid():  # a fork: a data loader's process, for example
                _world = found = os.getpid(), World(found_place({}), _peers)
    return found[1]


def _peers(place: Place) -> Peers:
    from devshim.world.ray_peers import RayPeers

    return RayPeers(place)
