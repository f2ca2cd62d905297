"""Operators that read a GPU's values internally: how many elements ``nonzero`` finds, whether all are close.

On CUDA, PyTorch reports them through ``torch.cuda.set_sync_debug_mode``. The mode applies to the whole process. This
module sets it to ``"warn"``: the warning is raised in the thread that caused it, and a filter passes it to the guard of
that thread or task. A thread without a guard sees no warning, unless the mode was set before.

* The mode also reports explicit copies, such as ``x.cpu()``, which are therefore listed here and suppressed.
* Setting the mode starts CUDA, after which a process cannot fork. So this module waits until CUDA has been started.
* The warning comes after the operator, and does not name the card. devshim names the card if the process has used only
  one.
* A Python number that is assigned (``x[0] = 3.0``) is part of its operator, as on simulated GPUs; PyTorch copies it to
  the card and waits (2.13).
* A gradient that flows back through an explicit copy is not an implicit transfer (`backward`).
* PyTorch calls the mode a prototype: it does not cover the operators of ``torch.distributed`` and ``torch.sparse``.

On simulated GPUs, every operator passes through `simulation.hooks`; those for which a real GPU waits are in
`internals.waiting`. With native names, CUDA's mode is therefore left to the program.
"""

from __future__ import annotations

import functools
import sys
import warnings
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._device import _device_constructors

from devshim.devices.device import CPU, Device
from devshim.monitoring.instrumentation import is_suppressed, patched, suppressed
from devshim_backends._torch.devices import cuda_device_count, has_context, has_native_names
from devshim_backends._torch.tracing import compiles_here
from devshim_backends._torch.transfers.internals.backward import allow_gradients_of_copies
from devshim_backends._torch.transfers.internals.waiting import reason_to_wait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Report = Callable[[Device | None, Device, str], None]

__all__ = ["instrument_waits"]

_EXPLICIT = {
    torch.Tensor: ("to", "cpu", "cuda", "copy_", "type", "type_as", "new_tensor"),
    torch: ("tensor", "as_tensor", "asarray", "save", "load"),
    torch.cuda.Stream: ("synchronize",),
}
"""Functions that copy explicitly, and wait where they must."""
_PROTOTYPE_WARNING = "Synchronization debug mode is a prototype"
_SYNC_WARNING = "called a synchronizing CUDA operation"


@contextmanager
def instrument_waits(where: Callable[[Any], Device | None], report: Report) -> Iterator[None]:
    """Report operators that read a GPU's values internally, while the block is open."""
    with ExitStack() as stack:
        simulated = "devshim_backends._torch.simulation"
        if not has_native_names() and torch.cuda.is_available():
            stack.enter_context(_instrument_cuda(report))
        if f"{simulated}.hooks" in sys.modules:
            hooks, kernels = sys.modules[f"{simulated}.hooks"], sys.modules[f"{simulated}.internals.kernels"]
            stack.enter_context(patched(hooks, {"_compute": _reporting_compute(hooks._compute, where, report)}))
            stack.enter_context(patched(kernels, {"read": _reporting_read(kernels.read, where, report)}))
        yield


# ---------------------------------------------------------------------- CUDA
def _cuda() -> object:
    """Return a value that distinguishes CUDA's modes: native names have another one, which may end before a guard."""
    return getattr(torch._C, "_cuda_get_sync_debug_mode", None)


class _SyncFilter:
    """A warnings filter's pattern, replaced by an object that sees each warning's text in the warning's own thread."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self.mode_before: int | None = None
        self.open = True
        self._cuda: object = None

    def match(self, text: str) -> bool:
        """Return True if a warning comes from this guard's mode, and must not be shown."""
        if not self.open or not text.startswith((_PROTOTYPE_WARNING, _SYNC_WARNING)):
            return False
        if text.startswith(_SYNC_WARNING) and not is_suppressed():
            self._report(_only_used_card(), CPU, "an operator that waits for the card")
        return not self.mode_before

    def start(self) -> None:
        """Set the mode, if CUDA has started; a mode that other code has set stays, because it reports too."""
        if self.open and self.mode_before is None:
            self.mode_before, self._cuda = torch.cuda.get_sync_debug_mode(), _cuda()
            if not self.mode_before:
                torch.cuda.set_sync_debug_mode("warn")

    def stop(self) -> None:
        """Restore the mode, unless other code has changed it meanwhile."""
        self.open = False
        if self.mode_before == 0 and self._cuda is _cuda() and torch.cuda.get_sync_debug_mode() == 1:
            torch.cuda.set_sync_debug_mode("default")


_OPEN_FILTERS: list[_SyncFilter] = []
"""The filters of the open guards."""
_NOT_REGISTERED = [True]
"""Empty while a call of `_start` is registered with PyTorch for CUDA's start: PyTorch calls once per registration."""


def _start() -> None:
    """Set the mode for the open guards."""
    _NOT_REGISTERED[:] = [True]
    for each in list(_OPEN_FILTERS):
        each.start()


def _is_open() -> bool:
    """Return True if an open guard has set CUDA's mode."""
    return any(each.mode_before is not None for each in _OPEN_FILTERS)


def _only_used_card() -> Device | None:
    """Return the only card that this process has used; None if there are several."""
    used = [index for index in range(cuda_device_count()) if has_context(index)]
    return Device("gpu", used[0]) if len(used) == 1 else None


@contextmanager
def _instrument_cuda(report: Report) -> Iterator[None]:
    """Set CUDA's mode as soon as CUDA has started, and pass its warnings to ``report``."""
    sync_filter = _SyncFilter(report)
    warnings.filterwarnings("ignore", _SYNC_WARNING, UserWarning)
    entry: Any = ("ignore", sync_filter, UserWarning, None, 0)
    warnings.filters[0] = entry  # type: ignore[index]  # a list, despite its stub
    with _suppress_explicit_copies():
        _OPEN_FILTERS.append(sync_filter)
        _start_with_cuda()
        try:
            yield
        finally:
            _OPEN_FILTERS.remove(sync_filter)
            sync_filter.stop()
            if entry in warnings.filters:  # otherwise it is in a list that `warnings.catch_warnings` has set aside
                warnings.filters.remove(entry)  # type: ignore[attr-defined]


def _start_with_cuda() -> None:
    """Call `_start` now if CUDA has started, and otherwise when it starts."""
    try:
        _NOT_REGISTERED.pop()
    except IndexError:
        return  # another guard has registered it
    torch.cuda._lazy_call(_start)


@contextmanager
def _suppress_explicit_copies() -> Iterator[None]:
    """Report no copies of functions that copy explicitly, and no gradients of these copies."""
    _device_constructors()  # caches PyTorch's own functions, by which torch.device(...) as a context recognizes calls
    with ExitStack() as stack:
        for owner, names in _EXPLICIT.items():
            stack.enter_context(patched(owner, {name: _suppress_reports(getattr(owner, name)) for name in names}))
        setitem = _suppress_reports(torch.Tensor.__setitem__, numbers_only=True)
        stack.enter_context(patched(torch.Tensor, {"__setitem__": setitem}))
        engine = torch.autograd._engine_run_backward  # `backward` and `grad` call it, under any name
        engine = allow_gradients_of_copies(engine, _is_open)
        stack.enter_context(patched(torch.autograd, {"_engine_run_backward": engine}))
        yield


def _suppress_reports(original: Any, numbers_only: bool = False) -> Any:
    """Return a wrapper whose copies are not reported, or only if its last argument is not a Python number."""

    @functools.wraps(original)
    def method(*args: Any, **kwargs: Any) -> Any:
        if compiles_here() or is_suppressed():  # in this order: a compiler stops reading here
            return original(*args, **kwargs)
        if numbers_only and not isinstance(args[-1], (bool, int, float, complex)):
            return original(*args, **kwargs)
        with suppressed():
            return original(*args, **kwargs)

    return method


# ---------------------------------------------------------------------- simulated GPUs
def _reporting_compute(original: Any, where: Any, report: Report) -> Any:
    """Return a replacement for `hooks._compute` that reports operators for which a real GPU waits."""

    def compute(plan: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        reason = None if is_suppressed() else reason_to_wait(plan.name.partition("::")[2], args, kwargs)
        gpu = None if reason is None else where(next(x for x in args if isinstance(x, torch.Tensor)))
        if reason is None or gpu is None:
            return original(plan, args, kwargs)
        report(gpu, CPU, reason)
        with suppressed():
            return original(plan, args, kwargs)

    return compute


def _reporting_read(original: Any, where: Any, report: Report) -> Any:
    """Return a replacement for `kernels.read` that reports ``x.item()``."""

    def read(x: Any) -> Any:
        gpu = None if is_suppressed() else where(x)
        if gpu is not None:
            report(gpu, CPU, "item()")
        return original(x)

    return read
