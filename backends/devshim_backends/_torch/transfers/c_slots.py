"""Keeping PyTorch's tensors from becoming sequences to Python's C API while, and after, their ``__getitem__`` is ours.

``torch.tensor([a, b])`` takes what is a sequence apart, and a tensor without axes cannot be: PyTorch's class is none,
for it subscribes as a mapping does (``mp_subscript``).  A ``__getitem__`` that is given to a class in Python fills the
slot of sequences (``sq_item``) as well, and CPython leaves it filled when the method is taken away again.  So what has
stood in that slot, of the class and of those below it, is put back both times.

Where the struct behind a class is not what CPython has had since 3.8, there is no telling, and nothing is exchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from devshim.monitoring.instrumentation import slot_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["items_of", "put_back"]

_AS_SEQUENCE, _ITEM = 13, 3
"""Where, in words, a type's struct points to the functions of sequences, and where these have ``sq_item``."""


def items_of(cls: type) -> Mapping[type, int | None] | None:
    """Return what stands in the slot, of a class and of all below it; None where the slot cannot be found."""
    found: dict[type, int | None] = {}
    for each in _family(cls):
        slot = slot_of(each, _AS_SEQUENCE, _ITEM)
        if slot is None:
            return None
        found[each] = slot.value
    return found


def put_back(cls: type, items: Mapping[type, int | None]) -> None:
    """Put back what has stood there; in classes that were made meanwhile, what they would have got."""
    for each in _family(cls):
        slot, item = slot_of(each, _AS_SEQUENCE, _ITEM), items.get(each, items[cls])
        if slot is not None and slot.value != item:
            slot.value = item


def _family(cls: type) -> Iterator[type]:
    yield cls
    children: list[type] = type.__subclasses__(cls)
    for each in children:
        yield from _family(each)
