"""The simulated GPUs that this process has requested, with `devshim.simulate` or through its environment."""

from __future__ import annotations

from os import environ

from devshim.devices.amounts import read_count, read_limit

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from typing import TypeAlias

    from devshim.simulation.faults import Fault

    Request: TypeAlias = tuple[int, int | None, tuple[Fault, ...], str]
    """The number of GPUs, the bytes of each (None: no limit), their faults, and the platform that they imitate."""

__all__ = ["current", "simulated_gpus"]

asked: Request | None = None
"""The last arguments of `devshim.simulate`; None if it was not called."""


def current() -> Request:
    """Return the request: of a call, otherwise of the environment, otherwise for no GPUs."""
    given = asked
    if given is not None:
        return given
    gpus = environ.get("DEVSHIM_SIMULATE_GPUS")
    if not gpus:
        return (0, None, (), "cuda")
    memory = environ.get("DEVSHIM_SIMULATE_MEMORY") or None
    count, like = read_count(gpus, "DEVSHIM_SIMULATE_GPUS"), environ.get("DEVSHIM_SIMULATE_LIKE") or "cuda"
    if like != "cuda":
        from devshim.devices.platforms import read_like

        read_like(like, count, "DEVSHIM_SIMULATE_LIKE")
    return (count, read_limit(memory, "DEVSHIM_SIMULATE_MEMORY"), (), like)


def simulated_gpus() -> int:
    """Return the number of simulated GPUs that were requested; 0 without a request."""
    return current()[0]
