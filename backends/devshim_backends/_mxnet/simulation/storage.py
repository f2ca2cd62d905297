"""Facts about MXNet's chunks of memory: which chunk an array is in, its size, and how many arrays share it.

An MXNet array is a reference to a *chunk*: views and slices share one, and so do the tape of a recording, a gradient's
buffer and the engine's pending work. The C interface has no call for the chunk or for its number of holders, so
four words are read from the array's structures. In 1.9.1 and 2.0.0b1, the last releases, these begin with:

* an array: the chunk's address and the address of its count (a C++ ``shared_ptr``);
* a chunk: the address of its values, its size in bytes, and its device (``Storage::Handle``);
* the count: a table of functions, and the number of arrays that hold the chunk.

Only `set_cpu` writes there. `check` reads arrays with known answers before these addresses are used otherwise.
The values themselves are not touched: reading their address (``MXNDArrayGetData``) would race with the engine, which
allocates them when it runs an operator.
"""

from __future__ import annotations

from ctypes import byref, c_int32, c_int64, c_void_p
from functools import partial
from typing import Any

import mxnet as mx
from mxnet.base import _LIB, check_call

from devshim.errors import SimulationError
from devshim_backends._mxnet.internals.native import FAST_LIB, device_code

_word = c_void_p.from_address  # reads the pointer, or the size, at an address
_count = c_int32.from_address
_code = c_int64.from_address  # reads a device code

ALONE = 1
"""The result of `sharers` for an array with its own chunk; 0 in builds with LLVM's C++ library (see `check`)."""


def chunk(handle: int) -> int:
    """Return the address of the chunk that an array refers to; 0 for an array without a chunk."""
    return _word(handle).value or 0


def nbytes(chunk: int) -> int:
    """Return the bytes of a chunk, whether the engine has allocated them yet or not."""
    return _word(chunk + 8).value or 0


def set_cpu(handle: int, index: int) -> None:
    """Label a new array as one on MXNet's ``cpu(index)``; nothing may have used the array yet."""
    _count(chunk(handle) + 20).value = index


def sharers(handle: int) -> int:
    """Return how many arrays hold the chunk of an array, on the scale of `ALONE`."""
    return _count((_word(handle + 8).value or 0) + 8).value


def free_in_c(cls: Any) -> property:
    """Return a ``__del__`` for a class whose objects have an array's ``handle``: it frees that, and runs no Python.

    A Ctrl-C in a Python finalizer is lost, and the memory with it. Here Python looks up ``__del__`` as a property. Its
    getter, ``partial(partial, free)``, is called with the object and returns ``partial(free, object)``. Python calls
    that, and ctypes reads the handle from ``_as_parameter_``. The interpreter lock is kept, so that no thread sees an
    array whose memory was freed.
    """
    cls._as_parameter_ = cls.handle
    return property(partial(partial, FAST_LIB.MXNDArrayFree))


class OwnHandle:
    """An array that devshim owns, in the chunk of another array; it is not part of any recording."""

    __slots__ = ("handle",)

    def __init__(self, handle: Any) -> None:
        self.handle = c_void_p()  # written by the call itself: a Ctrl-C after it loses nothing
        check_call(FAST_LIB.MXNDArrayDetach(handle, byref(self.handle)))

    def is_alone(self) -> bool:
        """Return True if nothing else holds the chunk any more."""
        return sharers(self.handle.value or 0) == ALONE

    def wait(self) -> None:
        """Wait until all work requested on the chunk is done; raise what that work raised."""
        check_call(_LIB.MXNDArrayWaitToWrite(self.handle))


OwnHandle.__del__ = free_in_c(OwnHandle)  # type: ignore[attr-defined]


def check() -> None:
    """Check that arrays are laid out as this module reads them, and determine `ALONE`.

    Raises:
        SimulationError: They are not: this is an unknown build of MXNet.
    """
    global ALONE
    # `empty` and a slice run no operator. The engine holds the chunks of one that it has run, even for a moment after
    # `wait_to_read`: counts would change while they are read. `cpu(65)` is behind all simulated GPUs.
    x, other = (mx.nd.empty(shape, mx.cpu(index)) for index, shape in ((0, (4, 8)), (65, (3,))))
    ALONE = sharers(other.handle.value)
    before = sharers(x.handle.value)
    row = x[1:2]
    sharing = (chunk(x.handle.value) == chunk(row.handle.value), sharers(x.handle.value) - before)
    sizes = [nbytes(chunk(each.handle.value)) for each in (x, row, other)]
    if (
        sharing != (True, 1)
        or sizes != [128, 128, 12]
        or ALONE not in (0, 1)
        or any(device_code(each) != _code(chunk(each.handle.value) + 16).value for each in (x, other))
        or chunk(other.handle.value) == chunk(x.handle.value)
    ):
        msg = (
            f"devshim does not know the memory layout of arrays in this build of MXNet {mx.__version__}, so it cannot "
            "count the memory of simulated GPUs"
        )
        raise SimulationError(msg, "install MXNet 1.9.1 or 2.0.0b1 from PyPI")
