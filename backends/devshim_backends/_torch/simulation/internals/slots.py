"""Slots of classes written in C: the C functions that a call of the class runs, which Python may not change.

CPython has a function for each slot that looks up a method written in Python, ``__new__`` or ``__init__``, as for a
class written in Python. `replace` puts it into the slot, so that an item of the class's dictionary counts.

The words of a class are found by comparison with Python's answers; if they are not found, nothing changes.
"""

from __future__ import annotations

import ctypes
import gc
from typing import Any

from devshim.simulation.patching import Patches

__all__ = ["INIT", "NEW", "address", "replace", "replace_attribute"]

NEW, INIT = "__new__", "__init__"
_NUMBERS = {NEW: 65, INIT: 60}
"""The number of each method's slot in CPython's stable ABI (``typeslots.h``)."""
_SIZE = 64
"""The words of a class that are searched; it has 51 in Python 3.11."""

_get_slot = ctypes.pythonapi.PyType_GetSlot
_get_slot.restype, _get_slot.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_int]
_forget_lookups = ctypes.pythonapi.PyType_Modified
_forget_lookups.restype, _forget_lookups.argtypes = None, [ctypes.py_object]


class _InPython:
    """A class whose slots contain CPython's functions that look up a method."""

    def __new__(cls) -> _InPython:
        return super().__new__(cls)

    def __init__(self) -> None:
        super().__init__()


def address(cls: type, method: str) -> int:
    """Return the address of the C function in a class's slot for a method."""
    return int(_get_slot(cls, _NUMBERS[method]))


class _Slot:
    """A slot as an item of a dictionary, for `Patches.replace_item`."""

    def __init__(self, cls: type, word: ctypes.c_void_p) -> None:
        self._cls, self._word = cls, word

    def get(self, key: str, absent: object) -> int:
        """Return the address of the function."""
        return self._word.value or 0

    def __setitem__(self, key: str, address: int) -> None:
        self._word.value = address
        _forget_lookups(self._cls)


def _word(cls: type, method: str) -> ctypes.c_void_p | None:
    """Return the word of a class that contains the address of the function in a slot."""
    words = (ctypes.c_void_p * _SIZE).from_address(id(cls))
    wanted = address(cls, method)
    found = [index for index, value in enumerate(words) if value == wanted]
    return ctypes.c_void_p.from_buffer(words, found[0] * ctypes.sizeof(ctypes.c_void_p)) if len(found) == 1 else None


class _Attributes:
    """The attributes of a class written in C as a dictionary, for `Patches.replace_item`."""

    def __init__(self, cls: type) -> None:
        self._cls = cls
        (self._attributes,) = gc.get_referents(vars(cls))

    def get(self, key: str, absent: object) -> Any:
        """Return an attribute without calling its ``__get__``."""
        return self._attributes.get(key, absent)

    def __setitem__(self, key: str, value: Any) -> None:
        self._attributes[key] = value
        _forget_lookups(self._cls)


def replace_attribute(patches: Patches, cls: type, name: str, new: Any) -> None:
    """Replace an attribute that a class written in C has."""
    patches.replace_item(_Attributes(cls), name, new)


def replace(patches: Patches, cls: type, method: str, new: Any) -> None:
    """Let a function written in Python be a method of a class written in C."""
    word = _word(cls, method)
    (attributes,) = gc.get_referents(vars(cls))
    if word is not None and type(attributes) is dict:
        patches.replace_item(attributes, method, new)
        patches.replace_item(_Slot(cls, word), method, address(_InPython, method))
