"""A workaround in CPython's type slots, so that patching ``Tensor.__getitem__`` does not turn tensors into sequences.

``torch.tensor([a, b])`` iterates over every element that is a sequence to Python's C API, and it cannot iterate over a
tensor without axes. PyTorch's class is not a sequence: it implements ``[]`` as a mapping (``mp_subscript``). When
Python code assigns ``__getitem__`` to a class, CPython also fills the sequence slot (``sq_item``), and leaves it filled
when the method is removed. Therefore this module restores the slot's old value, in the class and its subclasses, after
the patch is installed and again after it is uninstalled.

If the struct behind a class differs from CPython's since 3.8, the slot cannot be found, and ``[]`` is not patched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from devshim.monitoring.instrumentation import slot_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["items_of", "put_back"]

_AS_SEQUENCE, _ITEM = 13, 3
"""Offsets in words: of the pointer to the sequence functions in a type's struct, and of ``sq_item`` among them."""


def items_of(cls: type) -> Mapping[type, int | None] | None:
    """Return the slot's value for a class and all its subclasses; None if the slot cannot be found."""
    found: dict[type, int | None] = {}
    for each in _family(cls):
        slot = slot_of(each, _AS_SEQUENCE, _ITEM)
        if slot is None:
            return None
        found[each] = slot.value
    return found


def put_back(cls: type, items: Mapping[type, int | None]) -> None:
    """Restore the slot's old values; a class that was made meanwhile gets the value that it would have inherited."""
    for each in _family(cls):
        slot, item = slot_of(each, _AS_SEQUENCE, _ITEM), items.get(each, items[cls])
        if slot is not None and slot.value != item:
            slot.value = item


def _family(cls: type) -> Iterator[type]:
    yield cls
    children: list[type] = type.__subclasses__(cls)
    for each in children:
        yield from _family(each)
