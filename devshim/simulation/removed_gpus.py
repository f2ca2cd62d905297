"""Simulated GPUs that are taken away while tensors are still on them.

Requirements this module answers:

* A tensor says where it was, on every framework, and its memory stays counted until it is gone.
* An error names the line that took its GPU away: in devshim's calls, and in the framework's own operators and
  reads as far as its adapter can intercept them (`Backend.refuse_taken`).
* Nothing is left in place where no tensor is left behind, and when the same GPUs come back everything works again.
"""

from __future__ import annotations

import gc
from contextlib import ExitStack
from typing import TYPE_CHECKING

from devshim.devices.device import CPU
from devshim.errors import SimulationError
from devshim.transfers.observers import site

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeAlias

    from devshim.contract.backend import Backend
    from devshim.devices.device import Device
    from devshim.simulation.memory import Fault

    Check: TypeAlias = Callable[[Device | None], None]

__all__ = ["located", "switch", "taken_away"]

_READS = ("copy_to", "copy_many", "to_numpy", "to_dlpack")
"""The checks that an adapter installs for tensors whose device is not known yet."""

_refusing: dict[str, ExitStack] = {}
"""The installed checks, by the backend's name."""


def switch(backend: Backend, gpus: int, memory: int | None, faults: Sequence[Fault]) -> None:
    """Have a backend show so many simulated GPUs, and refuse the use of what is left on others.

    Raises:
        SimulationError: As `Backend.simulate` does.
    """
    before, taken = backend.labelled, [(card, card.taken) for card in backend.cards or ()]
    left = _used_beyond(backend, gpus)
    _stop(backend)
    backend.labelled = max(gpus, left)
    for card, _ in taken[:gpus]:
        card.taken = None
    try:
        backend.simulate(gpus, memory, faults)
    except BaseException:
        backend.labelled = before
        for card, line in taken:
            card.taken = line
        if before > backend.simulated:
            _start(backend)
        raise
    for card, line in taken[gpus:]:
        card.taken = (line or site()) if card.device.index < left else None
    if left:
        _start(backend)


def _used_beyond(backend: Backend, gpus: int) -> int:
    """Return how many GPUs must keep their label: one more than the last that is taken away and holds something."""
    cards = backend.cards
    if cards is None or not cards.used_beyond(gpus):
        return 0
    gc.collect()  # what only cycles hold, such as an error and its traceback, is not in use
    return cards.used_beyond(gpus)


def _start(backend: Backend) -> None:
    """Refuse from now on the use of tensors on GPUs that were taken away."""
    cards: Any = backend.cards

    def check(device: Device | None) -> None:
        if device is not None and device is not CPU and device.kind == "gpu":
            cards[device.index].require_shown()

    plain = type(backend).device_of

    def device_of(x: Any) -> Device:
        device = plain(backend, x)
        check(device)
        return device

    own = vars(backend)
    own["device_of"] = device_of
    own.update({name: _checked(backend, getattr(backend, name), check) for name in _READS})
    stack = _refusing[backend.name] = ExitStack()
    for name in ("device_of", *_READS):
        stack.callback(own.pop, name, None)
    stack.enter_context(backend.refuse_taken(check))


def _stop(backend: Backend) -> None:
    entered = _refusing.pop(backend.name, None)
    if entered is not None:
        entered.close()


def _checked(backend: Backend, method: Callable[..., Any], check: Check) -> Callable[..., Any]:
    """Return a method of an adapter that asks first where the tensors are that it is given."""
    plain = type(backend).device_of

    def checked(xs: Any, *args: Any, **kwargs: Any) -> Any:
        alone = backend.is_tensor(type(xs))
        for x in (xs,) if alone else [xs[i] for i in range(len(xs))]:  # who iterates over `xs` takes from it
            if not backend.is_tracer(x):
                check(plain(backend, x))
        return method(xs, *args, **kwargs)

    return checked


def located(backend: Backend, read: Callable[[], Any]) -> Device:
    """Return where a tensor is that ``read()`` returns, or was before its GPU was taken away."""
    try:
        return backend.device_of(read())
    except SimulationError as error:
        return error.where()


def taken_away(device: Device, site: str) -> SimulationError:
    """A tensor is on a simulated GPU that is not shown any more."""
    error = SimulationError(
        f"{device} was taken away at {site}, and a tensor on it was used",
        f"keep ds.simulate(...) open for as long as its tensors are used, or move them before: ds.place(x, 'cpu'); "
        f"ds.simulate(gpus={device.index + 1}) brings {device} back, and what is on it",
    )
    error.device = device
    return error
