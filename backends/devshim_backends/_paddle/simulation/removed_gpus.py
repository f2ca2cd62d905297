"""Refusing tensors on simulated GPUs that were removed, as by ``ds.simulate(gpus=1)`` after ``gpus=2``.

`PaddleRemovedGpus` refuses reads of such tensors. The wrappers of ``hooks.py`` call `refuse_removed`.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from devshim.contract.backend import Backend
from devshim.monitoring.use_checks import instrument_uses
from devshim_backends._paddle.devices import core
from devshim_backends._paddle.simulation.device_rules import device_or_none, tensors_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from devshim.devices.device import Device

CHECK: Callable[[Device | None], None] | None = None
"""Raises if the GPU of a tensor was removed, given the tensor's device; None while no GPU is removed."""

_METHODS = ("clone", "_copy_to", "cpu", "detach", "value")


def refuse_removed(values: Iterable[Any]) -> None:
    """Raise `SimulationError` if a tensor among an operator's arguments is on a simulated GPU that was removed."""
    check = CHECK
    if check is not None:
        for x in tensors_in(values):
            check(device_or_none(x))


class PaddleRemovedGpus(Backend):
    """The mixin for simulated GPUs that were removed."""

    @contextmanager
    def refuse_removed_devices(self, check: Callable[[Device | None], None]) -> Iterator[None]:
        global CHECK
        CHECK = check
        try:
            with instrument_uses(core.eager.Tensor, device_or_none, check, _METHODS):
                yield
        finally:
            CHECK = None
