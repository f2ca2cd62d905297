"""Implicit transfers in MXNet: methods that read a card's values into Python or NumPy without naming a copy."""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import mxnet as mx

from devshim.contract.backend import Backend
from devshim.devices.device import CPU
from devshim.monitoring.instrumentation import instrument_operands, instrument_reads, is_suppressed, patched, suppressed
from devshim.monitoring.use_checks import instrument_uses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from devshim.devices.device import Device

_READS = (
    *(("asnumpy", "asnumpy()"), ("asscalar", "asscalar()"), ("nonzero", "nonzero()")),
    ("__reduce__", "pickle"),  # and copy.copy(x), which calls the same method
)
_ARRAYS = (mx.nd.NDArray, mx.np.ndarray)
_EXPLICIT_INSIDE = ("__setitem__", "__reduce__")
"""Methods that MXNet's own functions call for explicit transfers."""


class MxnetTransferHooks(Backend):
    """The mixin for implicit transfers in arrays' methods; copies inside other operators are not seen."""

    @contextmanager
    def report_implicit_transfers(self, report: Callable[[Device, Device, str], None]) -> Iterator[None]:
        own = {cls: {name: getattr(cls, name) for name in _EXPLICIT_INSIDE} for cls in _ARRAYS}
        with ExitStack() as stack:
            for cls in _ARRAYS:
                stack.enter_context(instrument_reads(cls, self._device_or_none, report, _READS))
                stack.enter_context(instrument_operands(cls, self._device_or_none, report, self._implicit_operand))
            for cls in _ARRAYS:
                methods = {name: _report_for_programs(own[cls][name], getattr(cls, name)) for name in _EXPLICIT_INSIDE}
                stack.enter_context(patched(cls, methods))
            if not hasattr(mx.nd.NDArray, "__array__"):
                stack.enter_context(patched(mx.nd.NDArray, {"__array__": property(self._report_read_by_numpy(report))}))
            yield

    def _report_read_by_numpy(self, report: Callable[[Device, Device, str], None]) -> Callable[[Any], Any]:
        """Return the getter of an attribute that MXNet's arrays lack, and that NumPy looks up before it reads them.

        Without it, ``np.asarray(x)`` takes an array for a sequence, and reads it number by number (1.9.1 gives up, and
        2.0.0b1 makes an array of objects). That still happens after the report, if ``report`` allows it.
        """

        def getter(x: Any) -> Any:
            source = None if is_suppressed() else self._device_or_none(x)
            if source is not None:
                report(source, CPU, "NumPy")
            raise AttributeError("__array__")

        return getter

    @contextmanager
    def refuse_removed_devices(self, check: Callable[[Device | None], None]) -> Iterator[None]:
        names = (*(name for name, _ in _READS), "wait_to_read", "detach", "as_nd_ndarray", "as_np_ndarray")
        with ExitStack() as stack:  # operators and new views are covered by `simulation.hooks`
            for cls in _ARRAYS:
                stack.enter_context(instrument_uses(cls, self._device_unchecked, check, names))
            yield

    def _device_unchecked(self, x: Any) -> Device | None:
        return None if self.is_tracer(x) else type(self).device_of(self, x)

    def _implicit_operand(self, x: Any) -> Device | None:
        """Return the card of an operand that MXNet reads silently; None if it is refused (host, simulated GPU)."""
        is_read = not self.simulated and isinstance(x, _ARRAYS) and x.ndim
        device = self._device_or_none(x) if is_read else None
        return None if device is CPU else device

    def _device_or_none(self, x: Any) -> Device | None:
        return None if self.is_tracer(x) else self.device_of(x)


def _report_for_programs(own: Any, instrumented: Any) -> Any:
    """Return a method that reports a transfer only if a line of the program causes it.

    ``mx.nd.array(a, ctx=...)``, ``split_and_load``, ``load_parameters`` and ``Parameter.set_data`` end in ``x[:] = a``,
    ``Trainer.save_states`` in ``pickle``: these calls name the copy.
    """

    def method(x: Any, *args: Any) -> Any:
        if not (sys._getframe(1).f_globals.get("__name__") or "").startswith("mxnet."):
            return instrumented(x, *args)
        with suppressed():
            return own(x, *args)

    method.__name__ = own.__name__
    method.__doc__ = own.__doc__
    return method
