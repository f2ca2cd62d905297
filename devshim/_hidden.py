"""Watching methods that read a tensor's values into Python or NumPy: what most adapters' ``watch`` is made of.

For adapters alone. While somebody watches, the methods of a framework's tensor class that copy without saying so are
replaced by ones that tell first; afterwards the class is as it was.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from devshim.device import CPU

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from devshim.device import Device

__all__ = ["READS", "reads_told"]

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
"""Method -> what it is called for."""

_ABSENT = object()
_TELLING = threading.local()


@contextmanager
def reads_told(
    cls: type,
    where: Callable[[Any], Device | None],
    report: Callable[[Device, Device, str], None],
    more: Iterable[tuple[str, str]] = (),
) -> Iterator[None]:
    """Have a tensor class tell of each read while the block is open.

    Args:
        cls: The class.
        where: Returns a tensor's device; None where it has none, such as that of a tracer.
        report: Told source, target and reason; what a read is made of is not told again.
        more: Further methods with what they are called for, such as ``("asnumpy", "asnumpy()")``.
    """
    told = {name: what for name, what in (*READS.items(), *more) if hasattr(cls, name)}
    before = {name: cls.__dict__.get(name, _ABSENT) for name in told}
    for name, what in told.items():
        setattr(cls, name, _telling(getattr(cls, name), what, where, report))
    try:
        yield
    finally:
        for name, method in before.items():
            if method is _ABSENT:
                delattr(cls, name)
            else:
                setattr(cls, name, method)


def _telling(original: Any, what: str, where: Any, report: Any) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(_TELLING, "now", False):
            return original(self, *args, **kwargs)
        _TELLING.now = True
        try:
            source = where(self)
            if source is not None:
                report(source, CPU, what)
            return original(self, *args, **kwargs)
        finally:
            _TELLING.now = False

    method.__name__ = getattr(original, "__name__", "method")
    method.__doc__ = getattr(original, "__doc__", None)
    return method
