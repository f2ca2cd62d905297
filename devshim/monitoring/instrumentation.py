"""Wrappers for the methods of tensors that make implicit transfers.

Most adapters build `Backend.report_implicit_transfers` from this module.

There are two kinds: methods that read a tensor's values into Python or NumPy, and methods in which a tensor on a GPU
gets an index or an operand in host memory, which the framework then silently copies to the GPU.

Only adapters use this module. While a guard or a ledger is active, these methods of a framework's tensor class are
replaced by wrappers that report first; afterwards the class is restored.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from devshim.devices.device import CPU
from devshim.monitoring.buffer_protocol import instrument_buffers, slot_of
from devshim.monitoring.operands import OperandCopies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import CodeType

    from devshim.devices.device import Device

__all__ = [
    "OPERANDS",
    "READS",
    "WRAPPERS",
    "instrument_operands",
    "instrument_reads",
    "is_suppressed",
    "patched",
    "rename_wrapper",
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

WRAPPERS: set[CodeType] = set()
"""The code of the wrappers, which compilers must not trace; all wrappers of a kind share it."""
_made_once = lru_cache(maxsize=1024)
"""Decorates functions that wrap a method: each guard wraps the same ones, and making a wrapper takes as long as
installing it."""
_ABSENT = object()
_ended: dict[tuple[Any, str, int], tuple[Any, Any]] = {}
"""By owner, name and `id`: methods that were still replaced when their block ended, and what they had replaced."""


class _Reporting(threading.local):
    """A thread's mark that it is inside an operation that is already reported."""

    active: bool = False  # of the class: looking up an attribute that a thread lacks takes five times as long


_REPORTING = _Reporting()


# ---------------------------------------------------------------------- what all wrappers share
def is_suppressed() -> bool:
    """Return True if this thread is inside an operation that is already reported."""
    return _REPORTING.active


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
        instrument_buffers(cls, _wrap_read_method(_read_nothing, "NumPy", where, report)) if buffers else nullcontext()
    )
    with patched(cls, methods), buffers_block:
        yield


def _read_nothing(x: Any) -> None:
    """Do nothing: a buffer is read by the function that comes after this one."""


@_made_once
def _wrap_read(original: Any, what: str, where: Any, report: Any) -> Any:
    """Return a method, or a property, that reports first."""
    if isinstance(original, property):
        return property(
            _wrap_read_method(original.fget, what, where, report), original.fset, original.fdel, original.__doc__
        )
    return _wrap_read_method(original, what, where, report)


@_made_once
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

    return rename_wrapper(method, getattr(original, "__name__", "method"), original)


def rename_wrapper(method: Any, name: str, original: Any) -> Any:
    """Return a wrapper with a name, and with the docstring of the original."""
    method.__name__ = name
    method.__doc__ = getattr(original, "__doc__", None)
    WRAPPERS.add(method.__code__)
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
    with the operator, and is not a transfer. Selecting by a mask on the GPU counts too: the host waits for the shape.

    Args:
        cls: The class.
        where: Returns a tensor's device; None if it has none, such as a tracer.
        report: Called with source, target and reason.
        copied_from: Returns the device of an operand that the framework would copy to another device, and None for an
            operand that it would refuse, or that is not one of its tensors.
        names: Only these methods.
        indices: True if the framework copies an index that is one of its tensors to another device.
    """
    found = OperandCopies(cls if indices else (), where, copied_from)
    methods = {name: _wrap_operand(getattr(cls, name), name, found, report) for name in names if hasattr(cls, name)}
    with patched(cls, methods):
        yield


@_made_once
def _wrap_operand(original: Any, name: str, found: OperandCopies, report: Any) -> Any:
    """Return a method that reports what it is about to copy, and then calls the original."""
    copies_of, what = {"__getitem__": found.of_index, "__setitem__": found.of_write}.get(name, found.of), OPERANDS[name]

    def method(x: Any, *others: Any) -> Any:
        copies = () if is_suppressed() else copies_of(x, others, what)
        if not copies:  # nearly always
            return original(x, *others)
        _REPORTING.active = True  # nested copies are not reported again
        try:
            for copy in copies:
                report(*copy)
            return original(x, *others)
        finally:
            _REPORTING.active = False

    return rename_wrapper(method, name, original)
