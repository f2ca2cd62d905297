"""Detection of implicit transfers: values of a GPU's tensor that PyTorch copies to Python or NumPy silently."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import has_torch_function_unary

from devshim.contract.backend import Backend
from devshim.devices.device import CPU
from devshim.monitoring.instrumentation import OPERANDS, instrument_operands, instrument_reads
from devshim.monitoring.use_checks import instrument_uses
from devshim_backends._torch.scopes import skip_wrappers
from devshim_backends._torch.transfers.internals.c_slots import read_item_slots, restore_item_slots
from devshim_backends._torch.transfers.operators import instrument_waits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from devshim.devices.device import Device


class TorchTransferHooks(Backend):
    """Mixin for implicit transfers: those of tensors' methods, and those of operators that wait for a GPU."""

    @contextmanager
    def report_implicit_transfers(self, report: Callable[[Device | None, Device, str], None]) -> Iterator[None]:
        items = read_item_slots(torch.Tensor)
        operands = [name for name in OPERANDS if name != "__getitem__" or items is not None]
        with ExitStack() as stack:
            if items is not None:
                stack.callback(restore_item_slots, torch.Tensor, items)
            stack.enter_context(instrument_reads(torch.Tensor, self._where, report))
            stack.enter_context(instrument_waits(self._where, report))
            stack.enter_context(instrument_operands(torch.Tensor, self._where, report, names=operands))
            if items is not None:
                restore_item_slots(torch.Tensor, items)
            skip_wrappers()
            yield

    @contextmanager
    def refuse_removed_devices(self, check: Callable[[Device | None], None]) -> Iterator[None]:
        with instrument_uses(torch.Tensor, self._where, check):  # operators make the check in their kernels
            skip_wrappers()
            yield

    def _where(self, x: Any) -> Device | None:
        """Return the device of a tensor's values; None on ``meta``, in a trace, and under a ``FakeTensorMode``."""
        if self.is_tracer(x) or self.compiling():  # in this order: a compiler stops reading here
            return None
        if has_torch_function_unary(x):  # a handler sees the calls of the program only
            with torch._C.DisableTorchFunction():
                return self._device_of_values(x)
        return self._device_of_values(x)

    def _device_of_values(self, x: Any) -> Device | None:
        if x.is_cpu is True:  # the host's tensors and those below are not reported
            return CPU
        if self.tracing():
            return None
        return None if isinstance(x, FakeTensor) else self.from_native(x.device)
