"""Refusing tensors on simulated GPUs that were taken away: in reads here, in operators by `guards`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from devshim.contract.backend import Backend
from devshim.monitoring.use_checks import uses_checked
from devshim_backends._paddle.devices import core
from devshim_backends._paddle.simulation.device_rules import place_of, tensors_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from devshim.devices.device import Device

CHECK: Callable[[Device | None], None] | None = None
"""Called with the device of a tensor, raises if it was taken away; None while no GPU is taken away."""

_MORE = ("clone", "_copy_to", "cpu", "detach", "value")


def require_shown(values: Iterable[Any]) -> None:
    """Raise `SimulationError` where a tensor among an operator's arguments is on a card that was taken away."""
    check = CHECK
    if check is not None:
        for x in tensors_in(values):
            check(place_of(x))


class PaddleTaken(Backend):
    """The mixin for GPUs that were taken away."""

    @contextmanager
    def refuse_taken(self, check: Callable[[Device | None], None]) -> Iterator[None]:
        global CHECK
        CHECK = check
        try:
            with uses_checked(core.eager.Tensor, place_of, check, _MORE):
                yield
        finally:
            CHECK = None
