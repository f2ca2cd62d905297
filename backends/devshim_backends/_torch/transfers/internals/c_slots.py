"""A workaround in CPython's type slots, so that patching ``Tensor.__getitem__`` does not turn tensors into sequences.

A patched method is not enough. PyTorch implements ``[]`` as a mapping (``mp_subscript``), so a tensor is not a
sequence to Python's C API. When Python code assigns ``__getitem__`` to a class, CPython also fills the sequence slot
(``sq_item``), and leaves it filled when the method is removed. From then on ``torch.tensor([a, b])`` iterates over
``a`` and ``b``, which fails for tensors without axes. No Python code can empty the slot, and no other hook sees an
index that C++ copies to a real GPU: CUDA's debug mode reports only that something waits, and a ``TorchFunctionMode``
belongs to one thread and slows every operator down. So this module restores the slot's old value, in the class and its
subclasses, after the patch is installed and again after it is uninstalled.

If the struct behind a class differs from CPython's since 3.8, the slot cannot be found, and ``[]`` is not patched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from devshim.monitoring.instrumentation import slot_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from ctypes import c_void_p

__all__ = ["ItemSlot", "read_item_slots", "restore_item_slots"]

_AS_SEQUENCE, _ITEM = 13, 3
"""Offsets in words: of the pointer to the sequence functions in a type's struct, and of ``sq_item`` among them."""


class ItemSlot(NamedTuple):
    """The slot of a class, and its value before the patch."""

    slot: c_void_p
    value: int | None


def read_item_slots(cls: type) -> Mapping[type, ItemSlot] | None:
    """Return the slot of a class and of each of its subclasses; None if one cannot be found."""
    found: dict[type, ItemSlot] = {}
    for each in _with_subclasses(cls):
        slot = slot_of(each, _AS_SEQUENCE, _ITEM)
        if slot is None:
            return None
        found[each] = ItemSlot(slot, slot.value)
    return found


def restore_item_slots(cls: type, items: Mapping[type, ItemSlot]) -> None:
    """Restore the slots' old values; a class that was made meanwhile gets the value that it would have inherited."""
    for each in _with_subclasses(cls):
        known = items.get(each)
        slot = slot_of(each, _AS_SEQUENCE, _ITEM) if known is None else known.slot
        value = (known or items[cls]).value
        if slot is not None and slot.value != value:
            slot.value = value


def _with_subclasses(cls: type) -> Iterator[type]:
    yield cls
    children: list[type] = type.__subclasses__(cls)
    for each in children:
        yield from _with_subclasses(each)
