"""Implicit transfers of JAX: reads of a GPU's values by Python or NumPy, and copies of operands to a GPU."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from jax._src.array import ArrayImpl

from devshim.contract.backend import Backend
from devshim.devices.device import CPU
from devshim.monitoring.instrumentation import instrument_operands, instrument_reads
from devshim.monitoring.use_checks import instrument_uses
from devshim_backends._jax.internals.clients import is_on_one_device
from devshim_backends._jax.transfers.operators import is_explicit_transfer, report_arguments, report_updates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from devshim.devices.device import Device

_READ_METHODS = (("_value", "NumPy"), ("tobytes", "tobytes()"))
"""The methods that read an array. All reads use the first: pickling, ``hex``, and JAX's own."""


class JaxTransferHooks(Backend):
    """The mixin for implicit transfers, by methods and arguments. JAX refuses to mix committed arrays itself."""

    @contextmanager
    def report_implicit_transfers(self, report: Callable[[Device, Device, str], None]) -> Iterator[None]:
        reads = instrument_reads(ArrayImpl, self._device_or_none, report, _READ_METHODS, buffers=True)
        where, uncommitted = self._device_or_none, self._device_if_uncommitted
        operands = instrument_operands(ArrayImpl, where, report, uncommitted, indices=False)
        updates = report_updates(self._device_or_none, self._device_if_uncommitted, report)
        with reads, operands, updates, report_arguments(self._device_or_none, self.from_native, report):
            yield

    @contextmanager
    def refuse_removed_devices(self, check: Callable[[Device | None], None]) -> Iterator[None]:
        def check_all(x: Any) -> None:
            for native in x.sharding.device_set:
                check(self.from_native(native))

        names = [name for name, _ in _READ_METHODS]
        with instrument_uses(
            ArrayImpl, check_all, lambda _: None, names, buffers=True
        ):  # `simulation.hooks` has the rest
            yield

    def _device_if_uncommitted(self, x: Any) -> Device | None:
        """Return the device of an uncommitted array, which JAX moves to where it is used; None for other objects."""
        return self._device_or_none(x) if type(x) is ArrayImpl and not x._committed and x.ndim else None

    def _device_or_none(self, x: Any) -> Device | None:
        if is_explicit_transfer():
            return None
        if is_on_one_device(x):
            return self.device_of(x)
        devices = {self.from_native(native) for native in x.sharding.device_set}
        return min((each for each in devices if each not in (None, CPU)), default=CPU)  # the first of its GPUs
