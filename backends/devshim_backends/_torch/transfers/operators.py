"""Operators that read a card's values inside themselves: how many elements ``nonzero`` finds, whether all are close.

On CUDA PyTorch tells of them by ``torch.cuda.set_sync_debug_mode``.  That mode is the whole process': it is set to
``"warn"``, which a thread hears on its own, and a filter of ours takes the warning to the guard of the thread or task
that caused it.  One that no guard is open in hears nothing, unless the mode was set before.

* The mode also tells of what says that it copies, ``x.cpu()`` and the like, which are therefore named here.
* What sets the mode starts CUDA, after which a process cannot fork: before that, it waits for CUDA to be started.
* The warning comes when the operator is done, and says of no card that it was its own: it is named where it is the only
  one that this process has used.
* A number that is written (``x[0] = 3.0``) goes along with its operator, as it does on simulated GPUs; PyTorch copies
  it to a card and waits (2.13).
* A gradient that comes back through a copy that was written down is no hidden copy (`backward`).
* PyTorch calls it a prototype: it does not know operators of ``torch.distributed`` and ``torch.sparse``.

On simulated cards every operator passes `simulated.dispatch`, and those that such a card waits for are named here.
"""

from __future__ import annotations

import functools
import sys
import warnings
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch

from devshim.devices.device import CPU, Device
from devshim.monitoring.instrumentation import quiet, replaced, said
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
"""What copies as it says, and waits where it has to."""
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
"""Operator -> what a card is waited for in it: a number that the result's shape depends on, or that is the result."""


@contextmanager
def waits_told(where: Callable[[Any], Device | None], report: Report) -> Iterator[None]:
    """Have PyTorch tell of operators that read a card's values inside themselves, while the block is open."""
    with ExitStack() as stack:
        if torch.cuda.is_available():
            stack.enter_context(_cuda_told(report))
        simulated = "devshim_backends._torch.simulation"
        if f"{simulated}.dispatch" in sys.modules:
            dispatch, kernels = sys.modules[f"{simulated}.dispatch"], sys.modules[f"{simulated}.kernels"]
            stack.enter_context(replaced(dispatch, {"_compute": _telling_compute(dispatch._compute, where, report)}))
            stack.enter_context(replaced(kernels, {"read": _telling_read(kernels.read, where, report)}))
        yield


# ---------------------------------------------------------------------- CUDA
class _Filter:
    """What stands for a pattern in a filter of Python's warnings: sees each warning's text, in its own thread."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self.before: int | None = None
        self.open = True

    def match(self, text: str) -> bool:
        """Whether a warning is ours, and so not to be shown."""
        if not self.open or not text.startswith((_ONCE, _TOLD)):
            return False
        if text.startswith(_TOLD) and not quiet():
            self._report(_used(), CPU, "an operator that waits for the card")
        return not self.before

    def start(self) -> None:
        """Set the mode, once there is CUDA; a mode that somebody else has set is left, as it tells as well."""
        if self.open and self.before is None:
            self.before = torch.cuda.get_sync_debug_mode()
            if not self.before:
                torch.cuda.set_sync_debug_mode("warn")

    def stop(self) -> None:
        """Set the mode back, unless somebody else has set it meanwhile."""
        if self.before == 0 and torch.cuda.get_sync_debug_mode() == 1:
            torch.cuda.set_sync_debug_mode("default")
        self.open = False


_OPEN: list[_Filter] = []
"""The filters of the guards that are open."""
_UNASKED = [True]
"""Empty while PyTorch has been asked to call `_start` when CUDA starts: it calls once for each time it was asked."""


def _start() -> None:
    """Set the mode for the guards that are open."""
    _UNASKED[:] = [True]
    for each in list(_OPEN):
        each.start()


def _is_open() -> bool:
    """True if a guard is open since when CUDA has its mode."""
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
            stack.enter_context(replaced(owner, {name: _written(getattr(owner, name)) for name in names}))
        stack.enter_context(replaced(torch.Tensor, {"__setitem__": _number_written(torch.Tensor.__setitem__)}))
        engine = torch.autograd._engine_run_backward  # of `backward` and `grad`, by whatever name they are called
        stack.enter_context(replaced(torch.autograd, {"_engine_run_backward": passing(engine, _is_open)}))
        _OPEN.append(ours)
        try:
            _UNASKED.pop()
        except IndexError:
            pass  # another guard has asked
        else:
            torch.cuda._lazy_call(_start)  # at once where CUDA has been started
        try:
            yield
        finally:
            _OPEN.remove(ours)
            ours.stop()
            if entry in warnings.filters:  # else in a list that `warnings.catch_warnings` has put aside
                warnings.filters.remove(entry)  # type: ignore[attr-defined]


def _written(original: Any) -> Any:
    @functools.wraps(original)
    def method(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or quiet():  # in this order: a compiler reads no further
            return original(*args, **kwargs)
        with said():
            return original(*args, **kwargs)

    return method


def _number_written(original: Any) -> Any:
    """Let a number pass that is written into a tensor; other copies for it are reported outside of this."""

    @functools.wraps(original)
    def __setitem__(x: Any, index: Any, value: Any) -> Any:
        if torch.compiler.is_compiling() or quiet() or not isinstance(value, (bool, int, float, complex)):
            return original(x, index, value)
        with said():
            return original(x, index, value)

    return __setitem__


# ---------------------------------------------------------------------- simulated cards
def _telling_compute(original: Any, where: Any, report: Report) -> Any:
    def compute(plan: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        what = None if quiet() else _waited_for(plan.name.partition("::")[2], args, kwargs)
        card = None if what is None else where(next(x for x in args if isinstance(x, torch.Tensor)))
        if what is None or card is None:
            return original(plan, args, kwargs)
        report(card, CPU, what)
        with said():
            return original(plan, args, kwargs)

    return compute


def _telling_read(original: Any, where: Any, report: Report) -> Any:
    def read(x: Any) -> Any:
        card = None if quiet() else where(x)
        if card is not None:
            report(card, CPU, "item()")
        return original(x)

    return read


def _waited_for(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """What a card is waited for in an operator; None if it is not."""
    if name in _INDEXED:
        masked = any(x is not None and x.dtype in (torch.bool, torch.uint8) for x in args[1])
        return "what a mask selects" if masked and (name == "index" or args[2].numel() != 1) else None
    if name == "repeat_interleave":
        return None if kwargs.get("output_size") is not None else "repeat_interleave()"
    told = _COUNTING.get(name)
    return None if told is None else told.format(name)
