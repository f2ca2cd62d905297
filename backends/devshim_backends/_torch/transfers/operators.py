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

On simulated GPUs, every operator passes through `simulation.dispatch`; those for which a real GPU waits are listed
here.
"""

from __future__ import annotations

import functools
import sys
import warnings
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch

from devshim.devices.device import CPU, Device
from devshim.monitoring.instrumentation import is_suppressed, patched, suppressed
from devshim_backends._torch.devices import cuda_cards, has_context
from devshim_backends._torch.transfers.backward import passing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Report = Callable[[Device | None, Device, str], None]

__all__ = ["waits_told"]

_WRITTEN = {
    torch.Tensor: ("to", "cpu", "cuda", "copy_", "type", "type_as", "new_tensor"),
    torch: ("tensor", "as_tensor", "asarray", "save", "load"),
    torch.cuda.Stream: ("synchronize",),
}
"""Functions that copy explicitly, and wait where they must."""
_ONCE = "Synchronization debug mode is a prototype"
_TOLD = "called a synchronizing CUDA operation"

_INDEXED = ("index", "index_put", "index_put_", "_index_put_impl_")
_COUNTING = {
    **dict.fromkeys(("nonzero", "masked_select", "bincount"), "{}()"),
    **dict.fromkeys(("_unique", "_unique2", "unique_dim"), "unique()"),
    **dict.fromkeys(("unique_consecutive", "unique_dim_consecutive"), "unique_consecutive()"),
    "equal": "equal()",
    "_linalg_check_errors": "a check of torch.linalg",
}
"""Operator -> the value for which the GPU waits: one that the result's shape depends on, or the result itself."""


@contextmanager
def waits_told(where: Callable[[Any], Device | None], report: Report) -> Iterator[None]:
    """Report operators that read a GPU's values internally, while the block is open."""
    with ExitStack() as stack:
        if torch.cuda.is_available():
            stack.enter_context(_cuda_told(report))
        simulated = "devshim_backends._torch.simulation"
        if f"{simulated}.dispatch" in sys.modules:
            dispatch, kernels = sys.modules[f"{simulated}.dispatch"], sys.modules[f"{simulated}.kernels"]
            stack.enter_context(patched(dispatch, {"_compute": _telling_compute(dispatch._compute, where, report)}))
            stack.enter_context(patched(kernels, {"read": _telling_read(kernels.read, where, report)}))
        yield


# ---------------------------------------------------------------------- CUDA
class _Filter:
    """A warnings filter's pattern, replaced by an object that sees each warning's text in the warning's own thread."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self.before: int | None = None
        self.open = True

    def match(self, text: str) -> bool:
        """Return True if a warning comes from this guard's mode, and must not be shown."""
        if not self.open or not text.startswith((_ONCE, _TOLD)):
            return False
        if text.startswith(_TOLD) and not is_suppressed():
            self._report(_used(), CPU, "an operator that waits for the card")
        return not self.before

    def start(self) -> None:
        """Set the mode, if CUDA has started; a mode that other code has set stays, because it reports too."""
        if self.open and self.before is None:
            self.before = torch.cuda.get_sync_debug_mode()
            if not self.before:
                torch.cuda.set_sync_debug_mode("warn")

    def stop(self) -> None:
        """Restore the mode, unless other code has changed it meanwhile."""
        if self.before == 0 and torch.cuda.get_sync_debug_mode() == 1:
            torch.cuda.set_sync_debug_mode("default")
        self.open = False


_OPEN: list[_Filter] = []
"""The filters of the open guards."""
_UNASKED = [True]
"""Empty while a call of `_start` is registered with PyTorch for CUDA's start: PyTorch calls once per registration."""


def _start() -> None:
    """Set the mode for the open guards."""
    _UNASKED[:] = [True]
    for each in list(_OPEN):
        each.start()


def _is_open() -> bool:
    """Return True if an open guard has set CUDA's mode."""
    return any(each.before is not None for each in _OPEN)


def _used() -> Device | None:
    """Return the only card that this process has used; None if there are several."""
    used = [index for index in range(cuda_cards()) if has_context(index)]
    return Device("gpu", used[0]) if len(used) == 1 else None


@contextmanager
def _cuda_told(report: Report) -> Iterator[None]:
    ours = _Filter(report)
    warnings.filterwarnings("ignore", _TOLD, UserWarning)
    entry: Any = ("ignore", ours, UserWarning, None, 0)
    warnings.filters[0] = entry  # type: ignore[index]  # a list, whatever its stub says
    with ExitStack() as stack:
        for owner, names in _WRITTEN.items():
            stack.enter_context(patched(owner, {name: _written(getattr(owner, name)) for name in names}))
        stack.enter_context(patched(torch.Tensor, {"__setitem__": _number_written(torch.Tensor.__setitem__)}))
        engine = torch.autograd._engine_run_backward  # `backward` and `grad` call it, under any name
        stack.enter_context(patched(torch.autograd, {"_engine_run_backward": passing(engine, _is_open)}))
        _OPEN.append(ours)
        try:
            _UNASKED.pop()
        except IndexError:
            pass  # another guard has registered it
        else:
            torch.cuda._lazy_call(_start)  # called at once if CUDA has been started
        try:
            yield
        finally:
            _OPEN.remove(ours)
            ours.stop()
            if entry in warnings.filters:  # otherwise it is in a list that `warnings.catch_warnings` has set aside
                warnings.filters.remove(entry)  # type: ignore[attr-defined]


def _written(original: Any) -> Any:
    @functools.wraps(original)
    def method(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or is_suppressed():  # in this order: a compiler stops reading here
            return original(*args, **kwargs)
        with suppressed():
            return original(*args, **kwargs)

    return method


def _number_written(original: Any) -> Any:
    """Return a ``__setitem__`` that does not report assigned numbers; other wrappers report its other copies."""

    @functools.wraps(original)
    def __setitem__(x: Any, index: Any, value: Any) -> Any:
        if torch.compiler.is_compiling() or is_suppressed() or not isinstance(value, (bool, int, float, complex)):
            return original(x, index, value)
        with suppressed():
            return original(x, index, value)

    return __setitem__


# ---------------------------------------------------------------------- simulated GPUs
def _telling_compute(original: Any, where: Any, report: Report) -> Any:
    def compute(plan: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        what = None if is_suppressed() else _waited_for(plan.name.partition("::")[2], args, kwargs)
        card = None if what is None else where(next(x for x in args if isinstance(x, torch.Tensor)))
        if what is None or card is None:
            return original(plan, args, kwargs)
        report(card, CPU, what)
        with suppressed():
            return original(plan, args, kwargs)

    return compute


def _telling_read(original: Any, where: Any, report: Report) -> Any:
    def read(x: Any) -> Any:
        card = None if is_suppressed() else where(x)
        if card is not None:
            report(card, CPU, "item()")
        return original(x)

    return read


def _waited_for(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Return a description of the value that a GPU waits for in an operator; None if it does not wait."""
    if name in _INDEXED:
        masked = any(x is not None and x.dtype in (torch.bool, torch.uint8) for x in args[1])
        return "what a mask selects" if masked and (name == "index" or args[2].numel() != 1) else None
    if name == "repeat_interleave":
        return None if kwargs.get("output_size") is not None else "repeat_interleave()"
    told = _COUNTING.get(name)
    return None if told is None else told.format(name)
