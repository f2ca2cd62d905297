"""Watching what NumPy reads of tensors through Python's buffers, which no method of their class takes part in.

``np.asarray(x)`` asks an object for a buffer before it looks for ``__array__``, and finds one on the eager tensors of
TensorFlow and on those arrays of JAX that are in host memory, simulated cards among them.  The function that gives it
stands in a slot of the C struct behind the class.  While somebody watches, another stands there that tells first; where
it is to be refused, it gives no buffer, and NumPy goes on to ``__array__``, which raises what is to be raised.

Where the struct is not what CPython has had since 3.8 (other interpreters, builds without the global lock) nothing is
exchanged, and such reads are not seen.
"""

from __future__ import annotations

import _thread
import ctypes
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from devshim.errors import SimulationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["buffers_told", "refusal", "slot_of"]

_WORD = ctypes.sizeof(ctypes.c_void_p)
_BASICSIZE, _AS_BUFFER, _FLAGS = 4, 20, 21
"""Where, in words, a type's struct has these fields; the first word of what the second points to is the function."""
_Give = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p, ctypes.c_int)
_FAILED = -1

_TELLS: dict[type, Callable[[Any], object]] = {}
"""Whom a class tells while it is watched."""
_REFUSED = threading.local()
_OURS: dict[type, Any] = {}
"""What has stood in a slot is kept for good: a thread may be in it when the watch ends."""


@contextmanager
def buffers_told(cls: type, tell: Callable[[Any], object]) -> Iterator[None]:
    """Have a class call ``tell(x)`` before it gives a buffer of ``x``; if that raises, none is given."""
    slot = slot_of(cls, _AS_BUFFER)
    if slot is None or not slot.value:
        yield
        return
    theirs, _TELLS[cls] = slot.value, tell
    if cls not in _OURS:
        _OURS[cls] = _Give(_giving(cls, _Give(theirs)))
    slot.value = ctypes.cast(_OURS[cls], ctypes.c_void_p).value
    try:
        yield
    finally:
        slot.value = theirs


def _giving(cls: type, original: Any) -> Callable[[Any, int, int], int]:
    """What stands in the slot.  An error cannot leave it: whoever asked goes another way, or says that it failed."""

    def give(x: Any, view: int, flags: int) -> int:
        try:
            _TELLS[cls](x)
            return int(original(x, view, flags))
        except KeyboardInterrupt:
            _thread.interrupt_main()  # again, where it can be heard
        except SimulationError:  # no guard asks for it, and its traceback would keep the tensor
            pass
        except Exception as error:
            _REFUSED.last = error
        return _FAILED

    return give


def refusal(error: object) -> BaseException | None:
    """Why no buffer was given, where ``error`` is what Python says of that, such as to ``memoryview(x)``."""
    refused, _REFUSED.last = getattr(_REFUSED, "last", None), None
    return refused if isinstance(error, SystemError) and "without setting an exception" in str(error) else None


def slot_of(cls: type, table: int, function: int = 0) -> ctypes.c_void_p | None:
    """Return the place of a function in a table that the struct behind a class points to; None where it is not known.

    Args:
        cls: The class.
        table: Where, in words, its struct points to the table.
        function: Where, in words, the table has the function.
    """

    def field(number: int) -> int | None:
        return ctypes.c_void_p.from_address(id(cls) + number * _WORD).value

    if sys.implementation.name != "cpython":  # elsewhere `id` is no address
        return None
    if cls.__basicsize__ != field(_BASICSIZE) or cls.__flags__ != field(_FLAGS):
        return None
    found = field(table)
    return None if found is None else ctypes.c_void_p.from_address(found + function * _WORD)
