"""The simulated GPUs that this process asked for, by `devshim.simulate` or by its environment."""

from __future__ import annotations

from os import environ

from devshim.devices.amounts import read_count, read_limit

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from typing import TypeAlias

    from devshim.simulation.faults import Fault

    Request: TypeAlias = tuple[int, int | None, tuple[Fault, ...]]
    """How many GPUs, the bytes of each (None: no limit), and what goes wrong on them."""

__all__ = ["current", "simulated_gpus"]

asked: Request | None = None
"""What `devshim.simulate` was given last; None where it was not called."""


def current() -> Request:
    """Return what was asked for: by a call, else by the environment, else nothing."""
    given = asked
    if given is not None:
        return given
    gpus = environ.get("DEVSHIM_SIMULATE_GPUS")
    if not gpus:
        return (0, None, ())
    memory = environ.get("DEVSHIM_SIMULATE_MEMORY") or None
    return (read_count(gpus, "DEVSHIM_SIMULATE_GPUS"), read_limit(memory, "DEVSHIM_SIMULATE_MEMORY"), ())


def simulated_gpus() -> int:
    """Return how many simulated GPUs were asked for; 0 for none."""
    return current()[0]
