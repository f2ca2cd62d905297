"""Simulated GPUs: `simulate`, and what the environment asks for.

A request is made once for the process.  Frameworks that are imported already get it at once, so that "too
late" is said where it can still be mended; the others when devshim first loads them.  Nothing is simulated
beside real cards, and everything printed about a simulated card says that it is one.
"""

from __future__ import annotations

from _thread import RLock
from sys import modules

from devshim.contract import capabilities
from devshim.devices.amounts import is_size, read_count, read_limit
from devshim.errors import ArgumentError, SimulationError, UnsupportedError
from devshim.errors.formatting import show
from devshim.registry import argument_hints, discovery, import_hooks, registry, simulation_request, tracing
from devshim.registry import current as current_module
from devshim.transfers import engine

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from devshim.contract.backend import Backend
    from devshim.registry.simulation_request import Request
    from devshim.simulation.faults import Fault

__all__ = ["simulate"]

_SWITCHING = RLock()


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
    if isinstance(gpus, str) and gpus[-1:] in ("b", "B") and is_size(gpus):
        raise argument_hints.swapped_simulate(gpus, memory)
    before = simulation_request.current()
    request = (read_count(gpus), read_limit(memory), _read_faults(faults))
    _switch(*request)
    return Simulation(request, before)


def keep(gpus: int) -> None:
    """Show only so many of the simulated GPUs asked for: they are all alike, so which ones does not matter."""
    _switch(gpus, *simulation_request.current()[1:])


def apply_request(backend: Backend) -> None:
    """Give a backend that is being loaded the simulated GPUs this process asked for."""
    request = simulation_request.current()
    if request[0] == 0:
        return
    try:
        _apply(backend, *request)
    except (SimulationError, UnsupportedError) as error:
        # Loading goes on, for work on the CPU; whoever asks for a card is told this reason.
        backend.simulation_refused = error.problem


def _switch(gpus: int, memory: int | None, faults: tuple[Fault, ...]) -> None:
    """Make a request the process's own, on all frameworks at once or on none; one thread after the other."""
    with _SWITCHING:
        _switch_all(gpus, memory, faults)


def _switch_all(gpus: int, memory: int | None, faults: tuple[Fault, ...]) -> None:
    name = current_module.chosen()
    if gpus and name is not None:
        _refuse_gap(name, memory)
    concerned = registry.present()
    changed: list[tuple[Backend, Request]] = []
    before = simulation_request.current()
    refused = [(backend, backend.simulation_refused) for backend in concerned]
    try:
        for backend in concerned:
            was = (backend.simulated, *before[1:])
            if (backend.labelled or gpus) and _offer(backend, (gpus, memory, faults), backend.name == name):
                changed.append((backend, was))
    except BaseException:
        for backend, was in reversed(changed):
            _set(backend, *was)
        for backend, reason in refused:
            backend.simulation_refused = reason
        raise
    simulation_request.asked = (gpus, memory, faults)
    _watch_copies(bool(faults))
    for each in discovery.BUILTIN:
        import_hooks.watch(each)  # whoever imports it from now on, and however, it has its cards before it starts


def _watch_copies(watched: bool) -> None:
    """Have every copy counted while faults are asked for, and cost nothing else."""
    if watched:
        from devshim.simulation import memory as memory_module
    engine.FAULTS = memory_module.watch if watched else None


def _offer(backend: Backend, request: Request, current: bool) -> bool:
    """Switch one backend; one that is not current and cannot keeps its reason for whoever asks it for a card."""
    backend.simulation_refused = None
    try:
        _apply(backend, *request)
    except (SimulationError, UnsupportedError) as error:
        if current or backend.simulated:
            raise
        backend.simulation_refused = error.problem
        return False
    return True


def _apply(backend: Backend, gpus: int, memory: int | None, faults: tuple[Fault, ...]) -> None:
    from devshim.errors import messages

    if "simulate" in backend.gaps:
        raise capabilities.unsupported(backend, "simulate")
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
            raise capabilities.unsupported(registry.load(name), feature)


def _read_faults(faults: object) -> tuple[Fault, ...]:
    if faults == ():
        return ()
    from devshim.simulation.faults import Fault

    found = (faults,) if isinstance(faults, Fault) else tuple(faults) if isinstance(faults, (list, tuple)) else (None,)
    if not all(isinstance(fault, Fault) for fault in found):
        raise ArgumentError(
            f"faults is {show(faults)}, and it must be ds.Fault objects", "pass ds.Fault('gpu:1', 'allocation', at=3)"
        )
    return found


for _public in (Simulation, simulate):
    _public.__module__ = "devshim"


registry.on_load(apply_request)
