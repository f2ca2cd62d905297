"""The values of the environment variables that devshim reads: which of them make no sense."""

from __future__ import annotations

from devshim.devices import amounts, parsing, platforms
from devshim.errors import DevshimError
from devshim.registry import current, simulation_request

__all__ = ["problem_of"]


def problem_of(name: str, value: str) -> str | None:
    """Return what is wrong with the value of an environment variable that devshim reads, or None."""
    try:
        if name == "DEVSHIM_BACKEND":
            if value.strip():
                current.using(value.strip())
        elif name == "DEVSHIM_DEVICE":
            parsing.device(value.strip())
        elif name == "DEVSHIM_SIMULATE_GPUS":
            amounts.read_count(value, name)
        elif name == "DEVSHIM_SIMULATE_LIKE":
            platforms.read_like(value, 1, name)
        elif name == "DEVSHIM_SIMULATE_NATIVE_NAMES" or name == "DEVSHIM_PROGRESS":
            simulation_request.read_switch(value, name)
        elif name == "DEVSHIM_TUTORIAL_CACHE":
            return None  # any folder
        elif name == "DEVSHIM_SIMULATE_ASYNC_COPIES":
            simulation_request.read_async_copies(value, name)
        else:
            amounts.read_memory(value, name)
    except DevshimError as error:
        return error.problem
    return None
