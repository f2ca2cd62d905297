"""MXNet's pieces of memory, seen from Python: which one an array is in, how large it is, and how many share it.

An array of MXNet is a reference to a *chunk*: views and slices share one, and so do the tape of a recording, a
gradient's buffer and the engine's pending work.  No call of the C interface says which chunk, or how many hold it, so
three words are read from the array itself, which in 1.9.1 and 2.0.0b1, the last releases, begin

* an array: the chunk's address and the address of its count (a C++ ``shared_ptr``);
* a chunk: the address of its values, and how many bytes it has (``Storage::Handle``);
* the count: a table of functions, and the number of arrays that hold the chunk.

Nothing is ever written there.  `check` reads arrays whose answers are known before anything else trusts these places.
Values themselves are not touched: reading their address (``MXNDArrayGetData``) would race with the engine, which
allocates them when it runs an operator.
"""

from __future__ import annotations

from ctypes import byref, c_int32, c_void_p
from functools import partial
from typing import Any

import mxnet as mx
from mxnet.base import _LIB, check_call

from devshim.errors import SimulationError
from devshim_backends._mxnet.native import QUICK

_word = c_void_p.from_address
_count = c_int32.from_address


def chunk(handle: int) -> int:
    """Return the address of the chunk an array refers to; 0 for an array that holds nothing yet."""
    return _word(handle).value or 0


def nbytes(chunk: int) -> int:
    """Return the bytes of a chunk, whether the engine has allocated them yet or not."""
    return _word(chunk + 8).value or 0


def sharers(handle: int) -> int:
    """Return how many arrays hold the chunk of an array; the scale is `ALONE`'s."""
    return _count((_word(handle + 8).value or 0) + 8).value


def free_in_c(cls: Any) -> property:
    """Return a ``__del__`` for a class whose objects have an array's ``handle``: it frees that, and runs no Python.

    Ctrl-C in a finalizer in Python is lost, and so is the memory.  Here Python looks ``__del__`` up as a property,
    which gives MXNet's function with the object bound to it, and ctypes reads the handle from ``_as_parameter_``.
    The interpreter lock is kept, so that no thread ever sees an array whose memory is gone.
    """
    cls._as_parameter_ = cls.handle
    return property(partial(partial, QUICK.MXNDArrayFree))


class Kept:
    """An array of our own in somebody's chunk, which is not part of anything that is recorded."""

    __slots__ = ("handle",)

    def __init__(self, handle: Any) -> None:
        self.handle = c_void_p()  # written to by the call itself: Ctrl-C after it loses nothing
        check_call(QUICK.MXNDArrayDetach(handle, byref(self.handle)))

    def is_alone(self) -> bool:
        """Whether nobody else holds the chunk any more."""
        return sharers(self.handle.value or 0) == ALONE

    def wait(self) -> None:
        """Wait until all work on the chunk that was asked for is done; raises what that work raised."""
        check_call(_LIB.MXNDArrayWaitToWrite(self.handle))


Kept.__del__ = free_in_c(Kept)  # type: ignore[attr-defined]

ALONE = 1
"""What `sharers` says of an array whose chunk nobody shares; 0 in builds with LLVM's C++ library (`check`)."""


def check() -> None:
    """Make sure that arrays are laid out as this module reads them, and learn `ALONE`.

    Raises:
        SimulationError: They are not: this is another build of MXNet than those that are known.
    """
    global ALONE
    x = mx.nd.zeros((4, 8), mx.cpu(0))
    x.wait_to_read()
    apart = mx.nd.empty((3,), mx.cpu(0))  # touched by no operator: nobody but `apart` ever held it
    ALONE = sharers(apart.handle.value)
    before = sharers(x.handle.value)
    row = x[1:2]
    seen = (chunk(x.handle.value) == chunk(row.handle.value), sharers(x.handle.value) - before)
    sizes = [nbytes(chunk(each.handle.value)) for each in (x, row, apart)]
    if (
        seen != (True, 1)
        or sizes != [128, 128, 12]
        or ALONE not in (0, 1)
        or chunk(apart.handle.value) == chunk(x.handle.value)
    ):
        raise SimulationError(
            f"this build of MXNet {mx.__version__} lays its arrays out in a way devshim does not know, so it cannot "
            "count the memory of simulated GPUs",
            "install MXNet 1.9.1 or 2.0.0b1 from PyPI",
        )
