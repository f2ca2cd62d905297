"""The environment variables that devshim reads, and warnings about misspelt ones, which have no effect.

The environment is checked once in a process, when devshim first needs a framework. Most programs ignore a misspelt
variable silently; devshim warns about it.
"""

from __future__ import annotations

import sys
from os import environ

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

__all__ = ["BACKEND", "DEVICE", "KNOWN", "VALUES", "require_sound", "unread", "warn_about_unread"]

VALUES: Mapping[Any, str | bytes] = getattr(environ, "_data", environ)
"""The environment as `os.environ` stores it. `os.environ.get` takes half a microsecond for a variable that is not set,
and every new tensor asks for two."""
_encode: Callable[[str], str | bytes] = getattr(environ, "encodekey", str)
BACKEND = _encode("DEVSHIM_BACKEND")
"""The name of the variable in `VALUES`."""
DEVICE = _encode("DEVSHIM_DEVICE")
"""The name of the variable in `VALUES`."""

KNOWN = {
    "DEVSHIM_BACKEND": "the framework to use, such as torch",
    "DEVSHIM_DEVICE": "the default device of new tensors, such as gpu:1",
    "DEVSHIM_SIMULATE_GPUS": "how many GPUs to simulate, 0 to 1024",
    "DEVSHIM_SIMULATE_MEMORY": "the memory of each, such as 4GiB; read where GPUs are simulated by the variable above",
    "DEVSHIM_SIMULATE_LIKE": "the platform that they imitate: cuda, mps or xpu; read with the variables above",
    "DEVSHIM_SIMULATE_NATIVE_NAMES": "1 if the framework's own names for GPUs mean them; read with the variables above",
    "DEVSHIM_SIMULATE_ASYNC_COPIES": "late if copies to the host arrive only when the program waits for them",
    "DEVSHIM_PROGRESS": "0 to show no progress bars",
    "DEVSHIM_TUTORIAL_CACHE": "the folder for the environments, kernels and runs of tutorials",
    "DEVSHIM_ENGINE": "native or portable: what adds tensors of several ranks",
    "DEVSHIM_RAY_ADDRESS": "the address of the Ray cluster for jobs of several ranks, such as 10.0.0.1:6379",
}
"""All variables: name -> its meaning."""

OF_RANKS = frozenset(
    f"DEVSHIM_{name}"
    for name in ("JOB", "HOSTS", "ADDRESSES", "TIMEOUT", "ATTEMPT", "RAY", "HEARTBEAT", "RANK_PROCESS")
)
"""Variables that the launcher of several ranks, or a rank itself, sets for each of them."""

_looked = False


def warn_about_unread() -> None:
    """Warn once about each variable that has no effect; called when devshim first needs its environment."""
    global _looked
    if _looked:
        return
    _looked = True
    for text in unread():
        from warnings import warn

        warn(text, stacklevel=_users_level())


def require_sound() -> None:
    """Raise `ArgumentError` if the environment asks for simulated GPUs that make no sense."""
    from devshim.registry import simulation_request

    simulation_request.visible_request()


def unread() -> Iterator[str]:
    """Yield a sentence about each environment variable that was meant for devshim and has no effect."""
    for name in sorted(environ):
        if name[:3].upper() != "DEV" or name in KNOWN or name in OF_RANKS:
            continue
        near = _nearest(name)
        if near is not None:
            yield f"the environment variable {name} has no effect: did you mean {near}?"
        elif name.startswith("DEVSHIM_"):
            yield f"the environment variable {name} has no effect: devshim reads {', '.join(KNOWN)}"
    memory = environ.get("DEVSHIM_SIMULATE_MEMORY")
    if memory and not environ.get("DEVSHIM_SIMULATE_GPUS"):
        from devshim.devices.amounts import is_size

        if not is_size(memory):
            yield (
                f"DEVSHIM_SIMULATE_MEMORY is {memory[:40]!r}, which is not an amount of memory such as 4GiB; it has no "
                "effect while DEVSHIM_SIMULATE_GPUS is not set"
            )


def _nearest(name: str) -> str | None:
    """Return the variable that a misspelt name probably means, or None."""
    from difflib import get_close_matches

    if not name.startswith("DEVSHIM_"):  # it may belong to another program, so it must be very similar
        close = get_close_matches(name[:60].upper(), KNOWN, 1, 0.9)
        return close[0] if close else None
    endings = {each.removeprefix("DEVSHIM_"): each for each in KNOWN}
    close = get_close_matches(name[8:60].upper(), endings, 1, 0.45)
    return endings[close[0]] if close else None


def _users_level() -> int:
    """Return the stack level of the nearest frame outside devshim, to which the warning points."""
    level, frame = 0, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "devshim":
        level, frame = level + 1, frame.f_back
    return level + 1
