"""Rules for devshim calls while Gluon compiles a hybridized block.

1.9 runs ``hybrid_forward`` once with symbols; 2.0 runs ``forward`` once with real arrays and records the operations
("deferred compute"). In both, the whole graph then runs on the device of the block's inputs. 2.0 records a copy to
another device but silently ignores it in the graph (seen in 2.0.0b1), so it has to be refused at the call. The
device is known while the block is compiled: it is that of the arrays that the block was called with.
"""

from __future__ import annotations

import sys
from ctypes import byref, c_bool
from typing import TYPE_CHECKING, Any

import mxnet as mx

from devshim.errors import messages
from devshim_backends._mxnet.internals.native import FAST_LIB, IS_2, iter_arrays

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from devshim.contract.backend import Backend, Tensor
    from devshim.devices.device import Device

OUTSIDE = "do it to the block's inputs before calling it: a hybridized block runs on their device"
_GLUON = "mxnet.gluon.block"
_COMPILE_METHOD = "_get_graph"
"""The method of ``HybridBlock`` that runs while a block is compiled, in both releases."""
_is_deferred: Any = FAST_LIB.MXNDArrayIsDeferredCompute if IS_2 else None
_NAME_SCOPE: Any = None if IS_2 else mx.gluon.block._BlockScope._current
"""In 1.9, the name scope of the block that this thread runs is an attribute of this thread-local object.

It is read from the dictionary, because a missing attribute takes four times as long as a missing key.
"""


def is_deferred() -> bool:
    """Return True if 2.0 is recording a block in this thread; False in 1.9, which uses symbols."""
    if not IS_2:
        return False
    deferred = c_bool()
    _is_deferred(byref(deferred))
    return deferred.value


def may_be_compiling() -> bool:
    """Return False if this thread is certainly not compiling a block; does not walk up the stack."""
    if IS_2:
        return is_deferred()
    return _NAME_SCOPE.__dict__.get("value") is not None


def is_symbolic() -> bool:
    """Return True if 1.9 is running a block with symbols in this thread."""
    return may_be_compiling() and _call_of_block() is not None


def device_of_block(device_of: Callable[[Tensor], Device]) -> Device | None:
    """Return the device of the arrays that the block being compiled was called with, or None."""
    frame = _call_of_block()
    while frame is not None:
        for x in iter_arrays(frame.f_locals.get("args", ())):
            return device_of(x)
        frame = _call_of_block(frame.f_back)
    return None


def _call_of_block(frame: FrameType | None = None) -> FrameType | None:
    """Return the innermost frame, from a frame upwards, in which Gluon compiles a block, or None."""
    frame = frame or sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == _COMPILE_METHOD and frame.f_globals.get("__name__") == _GLUON:
            return frame
        frame = frame.f_back
    return None


def require_recordable(backend: Backend, instead: str = "make it outside, and pass it in") -> None:
    """Refuse to make an array of values while a block is compiled: its graph cannot contain one."""
    if is_deferred() if IS_2 else is_symbolic():
        raise messages.tracing(backend, called_function(), instead)


def require_symbolic(backend: Backend) -> None:
    """Refuse to make arrays while 1.9 compiles a block, since symbols and arrays do not mix; 2.0 records them."""
    if not IS_2:
        require_recordable(backend, "make it outside and pass it in, or use what ``F`` offers")


def called_function() -> str:
    """Return the name of the public function that the program called, for an error raised inside of devshim."""
    frame, name = sys._getframe(1), "place"
    while frame.f_back is not None:
        module = frame.f_globals.get("__name__") or ""
        if module.partition(".")[0] not in ("devshim", "devshim_backends"):
            break
        name = f"random.{frame.f_code.co_name}" if module == "devshim.tensors.random" else frame.f_code.co_name
        frame = frame.f_back
    return name


def copy_symbol(x: Any) -> Any:
    """Return a symbol for a copy of the array that a symbol represents."""
    return mx.sym.np.copy(x) if isinstance(x, mx.sym.np._Symbol) else mx.sym.identity(x)


def copy_recorded(x: Any) -> Any:
    """Return a copy of an array, on its device, made by an operator that 2.0 records."""
    return mx.np.copy(x) if isinstance(x, mx.np.ndarray) else mx.nd.identity(x)
