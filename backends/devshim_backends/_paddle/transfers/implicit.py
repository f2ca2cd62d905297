"""Implicit transfers in PaddlePaddle: methods that read a card's values into Python or NumPy without naming a copy."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import paddle

from devshim.contract.backend import Backend
from devshim.devices.device import CPU
from devshim.monitoring.instrumentation import instrument_operands, instrument_reads, is_suppressed, patched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from devshim.devices.device import Device

_WAITING_METHODS = tuple((name, f"{name}()") for name in ("nonzero", "masked_select", "unique"))
"""Methods that wait for a number from a card, because the shape of the result depends on it."""


class PaddleTransferHooks(Backend):
    """The mixin for implicit transfers in tensors' methods; copies inside other operators are not seen."""

    @contextmanager
    def report_implicit_transfers(self, report: Callable[[Device, Device, str], None]) -> Iterator[None]:
        reads = instrument_reads(paddle.Tensor, self._device_or_none, report, _WAITING_METHODS)
        with reads, instrument_operands(paddle.Tensor, self._device_or_none, report, self._device_copied_from):
            own = {name: getattr(paddle.Tensor, name) for name in ("__getitem__", "__setitem__")}
            with patched(paddle.Tensor, {name: self._report_indices(each, report) for name, each in own.items()}):
                yield

    def _report_indices(self, indexed: Any, report: Callable[[Device, Device, str], None]) -> Any:
        """Return an index method that reports single numbers on a card among its indices: the host waits for those."""

        def method(x: Any, index: Any, *value: Any) -> Any:
            if not is_suppressed():
                for source in {self._device_or_none(number) for number in _iter_numbers(index)}:
                    if source is not None:
                        report(source, CPU, "an index")
            return indexed(x, index, *value)

        method.__name__ = indexed.__name__
        method.__doc__ = indexed.__doc__
        return method

    def _device_copied_from(self, x: Any) -> Device | None:
        """Return the device of an operand that real cards copy or read in place; simulated GPUs refuse it."""
        mixes = not self.simulated and isinstance(x, paddle.Tensor) and x.ndim
        return self._device_or_none(x) if mixes else None

    def _device_or_none(self, x: Any) -> Device | None:
        return None if self.is_tracer(x) or self.compiling() else self.device_of(x)


def _iter_numbers(index: Any) -> Iterator[Any]:
    """Yield the 0-d tensors among indices and the ends of slices, except 0-d masks."""
    for part in index if isinstance(index, tuple) else (index,):
        for end in (part.start, part.stop, part.step) if isinstance(part, slice) else (part,):
            if isinstance(end, paddle.Tensor) and not end.ndim and end.dtype != paddle.bool:
                yield end
