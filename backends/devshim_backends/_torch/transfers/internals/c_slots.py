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

from typing import TYPE_CHECKING

from devshim.monitoring.instrumentation import slot_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["read_item_slots", "restore_item_slots"]

_AS_SEQUENCE, _ITEM = 13, 3
"""Offsets in words: of the pointer to the sequence functions in a type's struct, and of ``sq_item`` among them."""


def read_item_slots(cls: type) -> Mapping[type, int | None] | None:
    """Return the slot's value for a class and all its subclasses; None if the slot cannot be found."""
    items: dict[type, int | None] = {}
    for each in _with_subclasses(cls):
        slot = slot_of(each, _AS_SEQUENCE, _ITEM)
        if slot is None:
            return None
        items[each] = slot.value
    return items


def restore_item_slots(cls: type, items: Mapping[type, int | None]) -> None:
    """Restore the slot's old values; a class that was made meanwhile gets the value that it would have inherited."""
    for each in _with_subclasses(cls):
        slot, item = slot_of(each, _AS_SEQUENCE, _ITEM), items.get(each, items[cls])
        if slot is not None and slot.value != item:
            slot.value = item


def _with_subclasses(cls: type) -> Iterator[type]:
    yield cls
    children: list[type] = type.__subclasses__(cls)
    for each in children:
        yield from _with_subclasses(each)
