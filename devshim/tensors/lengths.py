"""The lengths of a tensor's axes, of which a framework may not know all.

A compiler does not know the length of a batch if it compiles a function for batches of any size, and the rows of a
ragged tensor differ. A framework then gives None, a negative number, or a symbol with which it can make new tensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from devshim.errors import TracingError, UnsupportedError
from devshim.errors.formatting import type_name

if TYPE_CHECKING:
    from devshim.contract.backend import Backend, Tensor
    from devshim.errors import DevshimError

__all__ = ["known_length", "known_shape"]


def known_shape(backend: Backend, x: Tensor, call: str) -> tuple[int, ...]:
    """Return the shape of a tensor, or raise the error of a call that needs the length of every axis.

    Raises:
        TracingError: The framework compiles a function for any length of an axis.
        UnsupportedError: The tensor is ragged.
    """
    shape = backend.shape(x)
    for axis, length in enumerate(shape):
        if length is None or (type(length) is int and length < 0):
            raise _unknown(backend, x, call, axis)
    return shape


def known_length(backend: Backend, x: Tensor, shape: tuple[int, ...], axis: int, call: str) -> int:
    """Return the length of an axis of a tensor with this shape, as a number; the errors are those of `known_shape`."""
    length = shape[axis]
    if type(length) is not int or length < 0:
        raise _unknown(backend, x, call, axis)
    return length


def _unknown(backend: Backend, x: Tensor, call: str, axis: int) -> DevshimError:
    if not backend.is_tracer(x):
        msg = f"ds.{call} needs the length of axis {axis}, and this {type_name(x)} has no fixed one"
        return UnsupportedError(msg, f"pad it if it is ragged; if a function is being compiled, call ds.{call} outside")
    msg = f"ds.{call} needs the length of axis {axis}, and {backend.title} is compiling a function for any length of it"
    instead = "leave out device=" if call.endswith("_like") else f"call ds.{call} outside of the function"
    return TracingError(msg, f"{instead}, or compile it for one length")
