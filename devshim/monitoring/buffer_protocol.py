"""Instrumentation of NumPy reads of tensors through Python's buffer protocol, which does not call Python methods.

``np.asarray(x)`` asks an object for a buffer before it looks for ``__array__``, and finds one on the eager tensors of
TensorFlow and on the JAX arrays that are in host memory, including those on simulated GPUs. The function that returns
the buffer is in a slot of the class's C struct. While the class is instrumented, the slot contains a function that
reports the read first. To refuse, it returns no buffer; NumPy then calls ``__array__``, which raises the error.

If the struct is not the one that CPython has had since 3.8 (other interpreters, builds without the global lock),
nothing is patched, and such reads are not detected.
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

__all__ = ["cause_of_refusal", "instrument_buffers", "slot_of"]

_WORD = ctypes.sizeof(ctypes.c_void_p)
_BASICSIZE, _AS_BUFFER, _FLAGS = 4, 20, 21
"""The offsets, in words, of these fields in a type's struct; the second points to a table whose first word is the
function."""
_GetBuffer = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p, ctypes.c_int)
_FAILED = -1

_CALLBACKS: dict[type, list[Callable[[Any], object]]] = {}
"""The functions that each instrumented class calls first."""
_ORIGINALS: dict[type, int] = {}
"""The addresses of the classes' own functions."""
_REFUSED = threading.local()
"""The last error of a callback in each thread, for `cause_of_refusal`."""
_REPLACEMENTS: dict[type, Any] = {}
"""The functions put in slots, never freed: a thread may still be in one when the instrumentation is removed."""


@contextmanager
def instrument_buffers(cls: type, callback: Callable[[Any], object]) -> Iterator[None]:
    """Make a class call ``callback(x)`` before it returns a buffer of ``x``; if that raises, it returns no buffer."""
    slot = slot_of(cls, _AS_BUFFER)
    if slot is None or not slot.value:
        yield
        return
    if cls not in _REPLACEMENTS:
        _ORIGINALS[cls] = slot.value
        _REPLACEMENTS[cls] = _GetBuffer(_make_getbuffer(cls, _GetBuffer(slot.value)))
    callbacks = _CALLBACKS.setdefault(cls, [])
    callbacks.append(callback)
    slot.value = ctypes.cast(_REPLACEMENTS[cls], ctypes.c_void_p).value
    try:
        yield
    finally:
        callbacks.remove(callback)
        if not callbacks:
            slot.value = _ORIGINALS[cls]


def _make_getbuffer(cls: type, original: Any) -> Callable[[Any, int, int], int]:
    """Return the function for the slot. An error cannot leave it: the caller tries another way, or fails."""

    def getbuffer(x: Any, view: int, flags: int) -> int:
        try:
            for callback in tuple(_CALLBACKS[cls]):
                callback(x)
            return int(original(x, view, flags))
        except KeyboardInterrupt:
            _thread.interrupt_main()  # Python raises it after the call
        except SimulationError:  # `cause_of_refusal` does not need it, and its traceback would keep the tensor alive
            pass
        except Exception as error:
            _REFUSED.last = error
        return _FAILED

    return getbuffer


def cause_of_refusal(error: object) -> BaseException | None:
    """Return why no buffer was given, if ``error`` is Python's error for that, such as from ``memoryview(x)``."""
    refused, _REFUSED.last = getattr(_REFUSED, "last", None), None
    return refused if isinstance(error, SystemError) and "without setting an exception" in str(error) else None


def slot_of(cls: type, table: int, function: int = 0) -> ctypes.c_void_p | None:
    """Return the address of a function in a table that a class's C struct points to; None if it is unknown.

    Args:
        cls: The class.
        table: The offset, in words, of the pointer to the table in the struct.
        function: The offset, in words, of the function in the table.
    """

    def field(number: int) -> int | None:
        return ctypes.c_void_p.from_address(id(cls) + number * _WORD).value

    if sys.implementation.name != "cpython":  # elsewhere `id` is not an address
        return None
    if cls.__basicsize__ != field(_BASICSIZE) or cls.__flags__ != field(_FLAGS):
        return None
    found = field(table)
    return None if found is None else ctypes.c_void_p.from_address(found + function * _WORD)
