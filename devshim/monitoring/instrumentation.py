"""Wrappers for the methods of tensors that make implicit transfers.

Most adapters build `Backend.report_implicit_transfers` from this module.

There are two kinds: methods that read a tensor's values into Python or NumPy, and methods in which a tensor on a GPU
gets an index or an operand in host memory, which the framework then silently copies to the GPU.

Only adapters use this module. While a guard or a ledger is active, these methods of a framework's tensor class are
replaced by wrappers that report first; afterwards the class is restored.
"""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from devshim.devices.device import CPU
from devshim.monitoring.buffer_protocol import instrument_buffers, slot_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from devshim.devices.device import Device

__all__ = [
    "OPERANDS",
    "READS",
    "instrument_operands",
    "instrument_reads",
    "is_suppressed",
    "patched",
    "slot_of",
    "suppressed",
]

READS = {
    "item": "item()",
    "tolist": "tolist()",
    "numpy": "numpy()",
    "__array__": "NumPy",
    "__float__": "float()",
    "__int__": "int()",
    "__complex__": "complex()",
    "__index__": "an index",
    "__bool__": "bool()",
    "__repr__": "print()",
    "__str__": "print()",
    "__format__": "print()",
}
"""Method -> the reason that a report gives for the read."""

_SYMBOLS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "truediv": "/",
    "floordiv": "//",
    "mod": "%",
    "pow": "**",
    "matmul": "@",
    "and": "&",
    "or": "|",
    "xor": "^",
}
OPERANDS = {
    **{f"__{name}__": f"an operand of {symbol}" for name, symbol in _SYMBOLS.items()},
    **{f"__r{name}__": f"an operand of {symbol}" for name, symbol in _SYMBOLS.items()},
    **{f"__{name}__": "a comparison" for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "__getitem__": "an index",
    "__setitem__": "an index or a value",
}
"""Method that takes another tensor or array -> the reason that a report gives."""

_ABSENT = object()
_ended: dict[tuple[Any, str, int], tuple[Any, Any]] = {}
"""By owner, name and `id`: methods that were still replaced when their block ended, and what they had replaced."""
_REPORTING = threading.local()


# ---------------------------------------------------------------------- what all wrappers share
def is_suppressed() -> bool:
    """Return True if this thread is inside an operation that is already reported."""
    return getattr(_REPORTING, "active", False)


@contextmanager
def suppressed() -> Iterator[None]:
    """Suppress reports in this thread while the block is open: its copies are already reported, or explicit."""
    before, _REPORTING.active = is_suppressed(), True
    try:
        yield
    finally:
        _REPORTING.active = before


@contextmanager
def patched(owner: Any, methods: dict[str, Any]) -> Iterator[None]:
    """Replace methods of a class, or functions of a module, while the block is open.

    Blocks may end in any order: a guard may end before or after the use of a removed GPU that began inside it.
    """
    before = {name: owner.__dict__.get(name, _ABSENT) for name in methods}
    for name, method in methods.items():
        setattr(owner, name, method)
    try:
        yield
    finally:
        ended = _ended
        for name, method in before.items():
            if owner.__dict__.get(name) is not methods[name]:  # a later block, or other code, replaced it
                ended[owner, name, id(methods[name])] = methods[name], method
                continue
            while (found := ended.pop((owner, name, id(method)), None)) is not None:
                method = found[1]
            if method is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, method)


# ---------------------------------------------------------------------- reads
@contextmanager
def instrument_reads(
    cls: type,
    where: Callable[[Any], Device | None],
    report: Callable[[Device, Device, str], None],
    more: Iterable[tuple[str, str]] = (),
    *,
    buffers: bool = False,
) -> Iterator[None]:
    """Make a tensor class report each read while the block is open.

    Args:
        cls: The class.
        where: Returns a tensor's device; None if it has none, such as a tracer.
        report: Called with source, target and reason; reads inside a reported read are not reported again.
        more: Further methods and properties with the reason to report, such as ``("asnumpy", "asnumpy()")``.
        buffers: True if NumPy can read the class's tensors past its methods (`devshim.monitoring.buffer_protocol`).
    """
    reasons = {name: what for name, what in (*READS.items(), *more) if hasattr(cls, name)}
    methods = {name: _wrap_read(getattr(cls, name), what, where, report) for name, what in reasons.items()}
    buffers_block = (
        instrument_buffers(cls, _wrap_read_method(lambda _: None, "NumPy", where, report)) if buffers else nullcontext()
    )
    with patched(cls, methods), buffers_block:
        yield


def _wrap_read(original: Any, what: str, where: Any, report: Any) -> Any:
    """Return a method, or a property, that reports first."""
    if isinstance(original, property):
        return property(
            _wrap_read_method(original.fget, what, where, report), original.fset, original.fdel, original.__doc__
        )
    return _wrap_read_method(original, what, where, report)


def _wrap_read_method(original: Any, what: str, where: Any, report: Any) -> Any:
    """Return a method that reports a read of its tensor, and then calls the original."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_suppressed():
            return original(self, *args, **kwargs)
        _REPORTING.active = True
        try:
            source = where(self)
            if source is not None:
                report(source, CPU, what)
            return original(self, *args, **kwargs)
        finally:
            _REPORTING.active = False

    method.__name__ = getattr(original, "__name__", "method")
    method.__doc__ = getattr(original, "__doc__", None)
    return method


# ---------------------------------------------------------------------- operands and indices
@contextmanager
def instrument_operands(
    cls: type,
    where: Callable[[Any], Device | None],
    report: Callable[[Device, Device, str], None],
    copied_from: Callable[[Any], Device | None] = lambda _: None,
    *,
    names: Iterable[str] = tuple(OPERANDS),
    indices: bool = True,
) -> Iterator[None]:
    """Make a tensor class report what its framework copies to a tensor on a GPU while the block is open.

    A NumPy array with at least one axis is always copied, and so is an index in host memory; a single number is passed
    with the operator, and is not a transfer.  Selecting by a mask on the GPU counts too: the host waits for the shape.

    Args:
        cls: The class.
        where: Returns a tensor's device; None if it has none, such as a tracer.
        report: Called with source, target and reason.
        copied_from: Returns the device of an operand that the framework would copy to another device, and None for an
            operand that it would refuse, or that is not one of its tensors.
        names: Only these methods.
        indices: True if the framework copies an index that is one of its tensors to another device.
    """
    reports = _OperandReports(cls if indices else (), where, report, copied_from)
    with patched(cls, {name: reports.wrap(getattr(cls, name), name) for name in names if hasattr(cls, name)}):
        yield


class _OperandReports:
    """Wrappers that report what the framework is about to copy to a tensor, before it does."""

    def __init__(self, indices: Any, where: Any, report: Any, copied_from: Any) -> None:
        self._indices, self._where, self._report, self._copied_from = indices, where, report, copied_from

    def wrap(self, original: Any, name: str) -> Any:
        """Return a method that reports what it is about to copy, and then calls the original."""
        writes, where = name == "__setitem__", self._where

        def method(x: Any, *others: Any) -> Any:
            # Only to a GPU is an operand copied, and to the host what is written: nearly always, this is the end.
            if is_suppressed() or (not writes and where(x) is CPU):
                return original(x, *others)
            _REPORTING.active = True
            try:
                if self._report_operands(x, others, name):
                    return original(x, *others)  # nested copies are not reported again
            finally:
                _REPORTING.active = False
            return original(x, *others)

        method.__name__ = name
        method.__doc__ = getattr(original, "__doc__", None)
        return method

    def _report_operands(self, x: Any, others: tuple[Any, ...], name: str) -> bool:
        """Report what the method of this name copies to a tensor; return True if anything is."""
        target, what, indexed = self._where(x), OPERANDS[name], name in ("__getitem__", "__setitem__")
        if target is CPU and name == "__setitem__":
            return self._report_written_value(others[-1], what)
        if target is None or target is CPU:
            return False
        parts = others[0] if indexed and others and isinstance(others[0], (tuple, list)) else others[:1]
        sources = [self._source(part, indexed) for part in (*parts, *others[1:])]
        copied = [source for source in sources if source is not None and source is not target]
        for source in copied:
            self._report(source, target, what)
        is_selection = name == "__getitem__" and any(map(self._is_mask, parts))
        if is_selection:
            self._report(target, CPU, "a selection by a mask")
        return is_selection or bool(copied)

    def _report_written_value(self, value: Any, what: str) -> bool:
        """Report a tensor on a GPU, also a 0-d one, that is written into a tensor on the host."""
        source = self._where(value) if isinstance(value, self._indices) else None
        if source is None or source is CPU:
            return False
        self._report(source, CPU, what)
        return True

    def _is_mask(self, part: Any) -> bool:
        """Return True if an index is a mask of the framework: the host must find out how many elements it selects."""
        return isinstance(part, self._indices) and "bool" in str(part.dtype)

    def _source(self, part: Any, indexed: bool) -> Device | None:
        """Return the device from which an operand or a part of an index is copied; None if it is not copied."""
        numpy = sys.modules.get("numpy")
        if numpy is not None and type(part) is numpy.ndarray:
            return CPU if part.ndim else None
        if indexed and isinstance(part, self._indices):
            device: Device | None = self._where(part)
            return device if getattr(part, "ndim", 1) else None
        return self._copied_from(part)  # type: ignore[no-any-return]
