"""The simulated GPUs that this process has requested, with `devshim.simulate` or through its environment."""

from __future__ import annotations

from os import environ

from devshim.devices.amounts import read_count, read_limit

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from devshim.contract.backend import Backend
    from devshim.devices.device import Device
    from devshim.simulation.faults import Fault

    Request: TypeAlias = tuple[int, int | None, tuple[Fault, ...], str, bool, str]
    """The number of GPUs, the bytes of each (None: no limit), their faults, the platform that they imitate, whether the
    framework's own names for GPUs mean them, and when a copy to the host that does not block arrives. If the names are
    on and there are no GPUs, all of them are hidden."""

__all__ = [
    "EMPTY_HIDES",
    "full_request",
    "has_native_names",
    "is_requested",
    "is_simulated",
    "notify_switched",
    "on_switch",
    "read_async_copies",
    "read_native_names",
    "read_switch",
    "simulated_gpus",
    "uuid",
    "visible_count",
    "visible_indices",
    "visible_request",
    "why_hidden",
]

EMPTY_HIDES = "_DEVSHIM_EMPTY_HIDES"
"""The environment variable that `devshim run` sets if the machine has no real GPUs, which it would have to hide. An
empty CUDA_VISIBLE_DEVICES is then the program's own, and hides all GPUs."""
_NATIVE_NAMES = "DEVSHIM_SIMULATE_NATIVE_NAMES"
_ASYNC_COPIES = "DEVSHIM_SIMULATE_ASYNC_COPIES"

asked: Request | None = None
"""The last arguments of `devshim.simulate`; None if it was not called."""


_ON_SWITCH: list[Callable[[Backend], None]] = []


def on_switch(notify: Callable[[Backend], None]) -> None:
    """Call a function with each backend whose simulated GPUs were switched on, off, or to another number."""
    _ON_SWITCH.append(notify)


def notify_switched(backend: Backend) -> None:
    """Notify the functions registered with `on_switch`."""
    for notify in _ON_SWITCH:
        notify(backend)


def visible_request() -> Request:
    """Return the request for the GPUs that CUDA_VISIBLE_DEVICES does not hide."""
    request = full_request()
    return (visible_count(request[0]), *request[1:]) if request[4] else request


def is_requested() -> bool:
    """Return True if simulated GPUs were requested, also if all of them are hidden under native names."""
    request = visible_request()
    return bool(request[0] or request[4])


def has_native_names() -> bool:
    """Return True if the framework's own names for GPUs were requested, so that CUDA_VISIBLE_DEVICES hides GPUs."""
    return full_request()[4]


def why_hidden() -> str:
    """Return why the process sees none of the simulated GPUs that it has requested; empty if it sees one."""
    gpus, names = visible_request()[0], visible_request()[4]
    if gpus or not names:
        return ""
    hidden = full_request()[0]
    all_of_them = "the simulated GPU" if hidden == 1 else f"all {hidden} simulated GPUs"
    return f"CUDA_VISIBLE_DEVICES={environ.get('CUDA_VISIBLE_DEVICES', '')[:40]!r} hides {all_of_them}"


def visible_count(gpus: int) -> int:
    """Return how many of ``gpus`` GPUs CUDA_VISIBLE_DEVICES shows: the driver stops at the first that does not exist.

    An empty value hides real GPUs, so that others can be simulated, and no simulated ones; but see `EMPTY_HIDES`.
    """
    return len(visible_indices(gpus))


def visible_indices(gpus: int) -> list[int]:
    """Return which of ``gpus`` GPUs CUDA_VISIBLE_DEVICES shows, in the order in which the program counts them."""
    text = environ.get("CUDA_VISIBLE_DEVICES")
    if text is None or not (text.strip() or environ.get(EMPTY_HIDES)):
        return list(range(gpus))
    found: list[int] = []
    for entry in map(str.strip, text.split(",")):
        index = _index_of(entry, gpus)
        if index is None:
            break
        if index in found:
            return []  # CUDA shows no GPU if one is named twice
        found.append(index)
    return found


def _index_of(entry: str, gpus: int) -> int | None:
    """Return the index of the GPU with this number or UUID, which may be cut short; None if no single GPU has it."""
    if entry.startswith("GPU-"):
        found = [index for index in range(gpus) if uuid(index).startswith(entry)]
        return found[0] if len(found) == 1 else None
    return int(entry) if entry.isascii() and entry.isdecimal() and int(entry) < gpus else None


def uuid(number: int) -> str:
    """Return the UUID of the GPU that has this number; the digits before the number spell ``devshim``."""
    return f"GPU-64657673-6869-6d00-0000-{number:012x}"


def full_request() -> Request:
    """Return the last request of `simulate`; without one, that of the environment; without either, no GPUs."""
    given = asked
    if given is not None:
        return given
    gpus = environ.get("DEVSHIM_SIMULATE_GPUS")
    if not gpus:
        return (0, None, (), "cuda", False, "immediate")
    memory = environ.get("DEVSHIM_SIMULATE_MEMORY") or None
    count, like = read_count(gpus, "DEVSHIM_SIMULATE_GPUS"), environ.get("DEVSHIM_SIMULATE_LIKE") or "cuda"
    if like != "cuda":
        from devshim.devices.platforms import read_like

        read_like(like, count, "DEVSHIM_SIMULATE_LIKE")
    names = read_switch(environ.get(_NATIVE_NAMES) or "0", _NATIVE_NAMES) and count > 0
    arrival = read_async_copies(environ.get("DEVSHIM_SIMULATE_ASYNC_COPIES") or "immediate", _ASYNC_COPIES)
    return (count, read_limit(memory, "DEVSHIM_SIMULATE_MEMORY"), (), like, names, arrival)


def read_async_copies(given: object, name: str = "async_copies") -> str:
    """Return when copies to the host that do not block arrive; ``name`` is its name in an error.

    Raises:
        ArgumentError: It is not ``"immediate"`` or ``"late"``.
    """
    if given not in ("immediate", "late"):
        from devshim.errors import ArgumentError
        from devshim.errors.formatting import show

        msg = f"{name} is {show(given)}, and it must be 'immediate' or 'late'"
        raise ArgumentError(msg, f"set {name}=late" if name == _ASYNC_COPIES else "ds.simulate(2, async_copies='late')")
    return str(given)


def read_native_names(given: object, like: str) -> bool:
    """Return True if native names were asked for, of simulated GPUs that imitate a platform.

    Raises:
        ArgumentError: It is not True or False, or the platform is not CUDA.
    """
    if isinstance(given, bool) and (like == "cuda" or not given):
        return given
    from devshim.errors import ArgumentError
    from devshim.errors.formatting import show

    if not isinstance(given, bool):
        msg = f"native_names is {show(given)}, and it must be True or False"
        raise ArgumentError(msg, "pass native_names=True for programs that are written for real GPUs")
    msg = f"native_names=True is for programs that are written for CUDA, and like is {like!r}"
    raise ArgumentError(msg, "leave out like=, or native_names=True")


def read_switch(text: str, name: str) -> bool:
    """Return the value of an environment variable that is 1 or 0.

    Raises:
        ArgumentError: It is something else.
    """
    if text not in ("0", "1"):
        from devshim.errors import ArgumentError

        msg = f"the environment variable {name} is {text[:40]!r}, and it must be 1 or 0"
        raise ArgumentError(msg, f"set {name}=1, or unset it")
    return text == "1"


def simulated_gpus() -> int:
    """Return the number of simulated GPUs that were requested; 0 without a request."""
    return visible_request()[0]


def is_simulated(device: Device) -> bool:
    """Return True if a device is a simulated GPU, by the request; nothing is started for the answer."""
    return device.kind == "gpu" and device.index < simulated_gpus()
