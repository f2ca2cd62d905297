"""Simulated GPUs: `simulate`, and what the environment asks for.

A request is made once for the process.  Frameworks that are imported already get it at once, so that "too
late" is said where it can still be mended; the others when devshim first loads them.  Nothing is simulated
beside real cards, and everything printed about a simulated card says that it is one.
"""

from __future__ import annotations

from _thread import RLock
from os import environ
from sys import modules

from devshim.devices.device import as_int
from devshim.errors import ArgumentError, SimulationError, UnsupportedError
from devshim.errors.formatting import show
from devshim.registry import argument_hints, discovery, registry, tracing
from devshim.registry import current as current_module
from devshim.transfers import engine

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    from devshim.contract.backend import Backend
    from devshim.simulation.memory import Fault

    Request: TypeAlias = tuple[int, int | None, tuple[Fault, ...]]

__all__ = ["simulate", "simulated_gpus"]

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
MAX_GPUS = 64
MOST_BYTES = 2**60
"""More than any memory has; sums of a few of these still fit in 63 bits."""

_SWITCHING = RLock()
_asked: Request | None = None
_failed: dict[str, str] = {}


class Simulation:
    """What `simulate` returns: usable as a ``with`` block, at whose end the earlier state is back.

    Attributes:
        gpus: How many simulated GPUs were asked for.
        memory: Bytes of each, or None for no limit.
        faults: What goes wrong on them.
    """

    def __init__(self, request: Request, before: Request) -> None:
        self.gpus: int = request[0]
        self.memory: int | None = request[1]
        self.faults: tuple[Fault, ...] = request[2]
        self._before = before

    def __enter__(self) -> Simulation:
        return self

    def __exit__(self, *failure: object) -> None:
        _switch(*self._before)

    def __repr__(self) -> str:
        return f"<{_told(self.gpus, self.memory, self.faults)}>"


def _told(gpus: int, memory: int | None, faults: tuple[Fault, ...]) -> str:
    cards = f"{gpus} simulated GPU{'' if gpus == 1 else 's'}"
    size = "" if memory is None else f" of {memory:,} bytes"
    failing = f" with {len(faults)} fault{'' if len(faults) == 1 else 's'}" if faults else ""
    return f"{cards}{size}{failing}"


def simulate(gpus: int = 2, memory: str | int | None = None, *, faults: Fault | Sequence[Fault] = ()) -> Simulation:
    """Show simulated GPUs on a machine that has none, in every framework that can.

    Args:
        gpus: How many, 0 to 64; 0 switches them off.
        memory: Of each, in bytes or as text such as ``"4GiB"``; None for no limit.
        faults: What goes wrong on them, for tests of what comes after: a `Fault` or several.

    Returns:
        A handle that, used as a ``with`` block, restores the earlier state; it need not be kept.

    Raises:
        SimulationError: A framework has started its devices already, or sees real cards; nothing has changed.
        UnsupportedError: The current framework declares that it cannot simulate.
        ArgumentError: ``gpus``, ``memory`` or ``faults`` makes no sense.

    A simulated card holds real data, carries its own label, and computes on the CPU.  The same can be asked for
    by ``DEVSHIM_SIMULATE_GPUS=2`` and ``DEVSHIM_SIMULATE_MEMORY=4GiB`` in the environment, and for a whole program by
    ``devshim run --gpus 2 script.py``.  The logger ``devshim`` is told of each framework that shows such cards.
    """
    tracing.refuse("simulate", "call it at the top of the program")
    if isinstance(gpus, str) and gpus[-1:] in ("b", "B") and argument_hints.is_size(gpus):
        raise argument_hints.swapped_simulate(gpus, memory)
    before = _request()
    request = (read_count(gpus), _read_limit(memory), _read_faults(faults))
    _switch(*request)
    return Simulation(request, before)


def simulated_gpus() -> int:
    """Return how many simulated GPUs were asked for, by `simulate` or by the environment; 0 for none."""
    return _request()[0]


def keep(gpus: int) -> None:
    """Show only so many of the simulated GPUs asked for: they are all alike, so which ones does not matter."""
    _switch(gpus, *_request()[1:])


def apply_request(backend: Backend) -> None:
    """Give a backend that is being loaded the simulated GPUs this process asked for."""
    request = _request()
    if request[0] == 0:
        return
    try:
        _apply(backend, *request)
    except (SimulationError, UnsupportedError) as error:
        # Loading goes on, for work on the CPU; whoever asks for a card is told this reason.
        _failed[backend.name] = error.problem


def why_not(backend: Backend) -> str | None:
    """Return why a backend shows no simulated GPUs although they were asked for, or None."""
    return _failed.get(backend.name)


def _request() -> Request:
    asked = _asked
    if asked is not None:
        return asked
    gpus = environ.get("DEVSHIM_SIMULATE_GPUS")
    if not gpus:
        return (0, None, ())
    memory = environ.get("DEVSHIM_SIMULATE_MEMORY") or None
    return (read_count(gpus, "DEVSHIM_SIMULATE_GPUS"), _read_limit(memory, "DEVSHIM_SIMULATE_MEMORY"), ())


def _switch(gpus: int, memory: int | None, faults: tuple[Fault, ...]) -> None:
    """Make a request the process's own, on all frameworks at once or on none; one thread after the other."""
    with _SWITCHING:
        _switch_all(gpus, memory, faults)


def _switch_all(gpus: int, memory: int | None, faults: tuple[Fault, ...]) -> None:
    global _asked
    name = current_module.chosen()
    if gpus and name is not None:
        _refuse_gap(name, memory)
    concerned = registry.present()
    changed: list[tuple[Backend, Request]] = []
    before, failed = _request(), dict(_failed)
    try:
        for backend in concerned:
            was = (backend.simulated, *before[1:])
            if (backend.labelled or gpus) and _offer(backend, (gpus, memory, faults), backend.name == name):
                changed.append((backend, was))
    except BaseException:
        for backend, was in reversed(changed):
            _set(backend, *was)
        _failed.clear()
        _failed.update(failed)
        raise
    _asked = (gpus, memory, faults)
    _watch_copies(bool(faults))
    from devshim.registry import import_hooks

    for each in discovery.BUILTIN:
        import_hooks.watch(each)  # whoever imports it from now on, and however, it has its cards before it starts


def _watch_copies(watched: bool) -> None:
    """Have every copy counted while faults are asked for, and cost nothing else."""
    if watched:
        from devshim.simulation import memory as memory_module
    engine.FAULTS = memory_module.watch if watched else None


def _offer(backend: Backend, request: Request, current: bool) -> bool:
    """Switch one backend; one that is not current and cannot keeps its reason for whoever asks it for a card."""
    _failed.pop(backend.name, None)
    try:
        _apply(backend, *request)
    except (SimulationError, UnsupportedError) as error:
        if current or backend.simulated:
            raise
        _failed[backend.name] = error.problem
        return False
    return True


def _apply(backend: Backend, gpus: int, memory: int | None, faults: tuple[Fault, ...]) -> None:
    from devshim.errors import messages

    if "simulate" in backend.gaps:
        raise messages.unsupported(backend, "simulate")
    if gpus and not backend.simulated and (real := backend.count("gpu")):
        raise messages.real_cards(backend, real)
    _set(backend, gpus, memory, faults)


def _set(backend: Backend, gpus: int, memory: int | None, faults: tuple[Fault, ...]) -> None:
    """Switch a backend, and tell the logger "devshim"; who has not imported `logging` shows no such line."""
    from devshim.simulation import removed_gpus

    removed_gpus.switch(backend, gpus, memory, faults)
    logging = modules.get("logging")
    if logging is not None:
        told = f"{_told(gpus, memory, faults)}, computed on the CPU" if gpus else "no simulated GPUs any more"
        logging.getLogger("devshim").info("%s shows %s", backend.title, told)


def _refuse_gap(name: str, memory: int | None) -> None:
    """Refuse for the current backend what it declares it cannot, before anything is imported or changed."""
    declared = registry.gaps(name)
    for feature in ("simulate", "simulate_memory") if memory is not None else ("simulate",):
        if feature in declared:
            from devshim.errors import messages

            raise messages.unsupported(registry.load(name), feature)


def read_count(gpus: object, name: str = "gpus") -> int:
    try:
        count = _digits(gpus) if isinstance(gpus, str) else as_int(gpus)
    except TypeError:
        count = -1
    if not 0 <= count <= MAX_GPUS:
        hint = "ds.simulate(gpus=2)" if name == "gpus" else f"set {name}=2"
        raise ArgumentError(f"{name} is {show(gpus)}, and it must be 0 to {MAX_GPUS}", hint)
    return count


def _digits(text: str) -> int:
    """A number written with at most five of the digits 0 to 9 alone; -1 for other text."""
    plain = text.strip(" ") if len(text) <= 40 else ""
    return int(plain) if plain.isascii() and plain.isdecimal() and len(plain) <= 5 else -1


def _read_limit(memory: object, name: str = "memory") -> int | None:
    return None if memory is None else read_memory(memory, name)


def read_memory(memory: object, name: str = "memory") -> int:
    """Return a number of bytes given as such or as text with a unit.

    Text is plain ASCII: a number without a sign, underscores between its digits at most, then perhaps a unit.
    """
    if isinstance(memory, str):
        text = memory.strip(" ").lower() if len(memory) <= 40 else ""
        number = text.rstrip("bikmgt")
        size = _times(number.strip(" "), _UNITS.get(text[len(number) :]))
    else:
        size = _whole(memory)
    if size is None or size <= 0 or size > MOST_BYTES:
        most = f", of at most {MOST_BYTES:,} bytes" if size is not None and size > MOST_BYTES else ""
        call = {"memory": "ds.simulate(memory='4GiB')"}.get(name, f"set {name} to 4GiB, 512MiB or a number of bytes")
        raise ArgumentError(
            f"{name} is {show(memory)}, and it must be a positive number of bytes or text with a unit{most}", call
        )
    return size


def _read_faults(faults: object) -> tuple[Fault, ...]:
    if faults == ():
        return ()
    from devshim.simulation.memory import Fault

    found = (faults,) if isinstance(faults, Fault) else tuple(faults) if isinstance(faults, (list, tuple)) else (None,)
    if not all(isinstance(fault, Fault) for fault in found):
        raise ArgumentError(
            f"faults is {show(faults)}, and it must be ds.Fault objects", "pass ds.Fault('gpu:1', 'allocation', at=3)"
        )
    return found


def _whole(number: object) -> int | None:
    try:
        return as_int(number)
    except TypeError:
        return None


def _times(number: str, factor: int | None) -> int | None:
    digits = number.replace("_", "")
    if factor is None or not digits or digits.strip("0123456789.e") or not number.isascii():
        return None
    try:
        if digits.isdecimal():
            return int(number) * factor  # to the last byte; refuses an underscore that is not between digits
        return int(float(number) * factor)
    except (ValueError, OverflowError):
        return None


for _public in (Simulation, simulate):
    _public.__module__ = "devshim"
