"""The simulated GPUs that this process has requested, with `devshim.simulate` or through its environment."""

from __future__ import annotations

from os import environ

from devshim.devices.amounts import read_count, read_limit

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from typing import TypeAlias

    from devshim.simulation.faults import Fault

    Request: TypeAlias = tuple[int, int | None, tuple[Fault, ...], str, bool]
    """The number of GPUs, the bytes of each (None: no limit), their faults, the platform that they imitate, and whether
    the framework's own names for GPUs mean them."""

__all__ = ["current", "read_switch", "simulated_gpus"]

asked: Request | None = None
"""The last arguments of `devshim.simulate`; None if it was not called."""


def current() -> Request:
    """Return the request: of a call, otherwise of the environment, otherwise for no GPUs."""
    given = asked
    if given is not None:
        return given
    gpus = environ.get("DEVSHIM_SIMULATE_GPUS")
    if not gpus:
        return (0, None, (), "cuda", False)
    memory = environ.get("DEVSHIM_SIMULATE_MEMORY") or None
    count, like = read_count(gpus, "DEVSHIM_SIMULATE_GPUS"), environ.get("DEVSHIM_SIMULATE_LIKE") or "cuda"
    if like != "cuda":
        from devshim.devices.platforms import read_like

        read_like(like, count, "DEVSHIM_SIMULATE_LIKE")
    names = read_switch("DEVSHIM_SIMULATE_NATIVE_NAMES")
    return (count, read_limit(memory, "DEVSHIM_SIMULATE_MEMORY"), (), like, names)


def read_switch(name: str) -> bool:
    """Return the value of an environment variable that is 1 or 0, or not set.

    Raises:
        ArgumentError: It is something else.
    """
    text = environ.get(name, "").strip()
    if text not in ("", "0", "1"):
        from devshim.errors import ArgumentError

        msg = f"the environment variable {name} is {text[:40]!r}, and it must be 1 or 0"
        raise ArgumentError(msg, f"set {name}=1, or unset it")
    return text == "1"


def simulated_gpus() -> int:
    """Return the number of simulated GPUs that were requested; 0 without a request."""
    return current()[0]
