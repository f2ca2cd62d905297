"""Refuse the use of tensors on simulated GPUs that were removed, in the methods of their classes.

Adapters use this module to implement `Backend.refuse_removed_devices`.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from devshim.errors import SimulationError
from devshim.monitoring.buffer_protocol import instrument_buffers
from devshim.monitoring.instrumentation import READS, patched, rename_wrapper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from devshim.devices.device import Device

__all__ = ["instrument_uses"]

_COPIED = ("__dlpack__", "__copy__", "__deepcopy__", "__iter__")
"""More methods that use a tensor, but that `READS` does not list."""


@contextmanager
def instrument_uses(
    cls: type,
    where: Callable[[Any], Device | None],
    check: Callable[[Device | None], None],
    more: Iterable[str] = (),
    *,
    buffers: bool = False,
) -> Iterator[None]:
    """Make a tensor class call ``check(device)`` before each read while the block is open.

    Args:
        cls: The class.
        where: Returns a tensor's device; None if it has none.
        check: Raises `SimulationError` for a removed device. A tensor there is printed as a line of text.
        more: Further methods and properties, such as ``"asnumpy"``.
        buffers: True if NumPy can read the class's tensors past its methods (`devshim.monitoring.buffer_protocol`).
    """

    def use(x: Any) -> None:
        check(where(x))

    names = [name for name in (*READS, *_COPIED, *more) if hasattr(cls, name)]
    methods = {
        name: (_wrap_print if READS.get(name) == "print()" else _wrap_use)(getattr(cls, name), use) for name in names
    }
    with patched(cls, methods), instrument_buffers(cls, use) if buffers else nullcontext():
        yield


def _wrap_use(original: Any, use: Callable[[Any], None]) -> Any:
    """Return a method, or a property, that checks first."""
    if isinstance(original, property):
        return property(_wrap_use(original.fget, use), original.fset, original.fdel, original.__doc__)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        use(self)
        return original(self, *args, **kwargs)

    return rename_wrapper(method, getattr(original, "__name__", "method"), original)


def _wrap_print(original: Any, use: Callable[[Any], None]) -> Any:
    """Return a method that prints a tensor; for a tensor that cannot be read, it prints the reason."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            use(self)
        except SimulationError as error:
            return f"<{type(self).__name__}: {error.problem.rpartition(', and a tensor')[0]}>"
        return original(self, *args, **kwargs)

    return rename_wrapper(method, getattr(original, "__name__", "method"), original)
