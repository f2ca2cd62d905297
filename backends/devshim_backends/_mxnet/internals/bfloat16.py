"""Casts to bfloat16, and functions of the array API for it, which compute in float32, and round.

MXNet has few operators for it. On the host, some of them fail on processors without AVX-512, and only when a result is
read.

* MXNet's own cast does not round: it leaves out the last 16 bits of each float32.
* The operators of 2.0 on the host take numbers below 2**-126 as zeros (2.0.0b1). So NumPy rounds tensors in host
  memory. While gradients are recorded or a block is compiled, the operators do.
* The gradient of a cast from bfloat16 is cast to bfloat16 by MXNet. It is rounded before, except in compiled blocks.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import mxnet as mx
import numpy as np

from devshim.devices.ranges import nearest_bfloat16
from devshim.trees.sequences import rebuild_sequence
from devshim_backends._mxnet.internals.native import (
    BFLOAT16,
    CODES,
    NAMES,
    ArrayMemory,
    device_code,
    dtype_code,
    is_recording,
    iter_arrays,
    numpy_shapes,
)
from devshim_backends._mxnet.tracing import is_deferred

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["among", "call", "cast", "cut", "widen"]

_ARRAY = mx.nd.NDArray
_BFLOAT16, _FLOAT32 = CODES["bfloat16"], CODES["float32"]
_KEEPS_DTYPE = "astype"


def cast(x: Any) -> Any:
    """Return an array of any dtype as bfloat16, rounded to the nearest number, ties to even."""
    if dtype_code(x) == _BFLOAT16:
        return cut(x)
    if type(x) in (mx.np.ndarray, _ARRAY) and device_code(x) & 1 and not is_recording() and not is_deferred():
        return _cast_on_host(x)
    return cut(_round(mx.np if isinstance(x, mx.np.ndarray) else mx.nd, x))


def cut(x: Any) -> Any:
    """Return an array as bfloat16, without the last 16 bits of each float32."""
    # Only the operators of the older interface know bfloat16; the views on both sides keep the gradient.
    if isinstance(x, mx.np.ndarray):
        return mx.nd.cast(x.as_nd_ndarray(), dtype=BFLOAT16).as_np_ndarray()
    return mx.nd.cast(x, dtype=BFLOAT16)


def widen(x: Any) -> Any:
    """Return an array of bfloat16 as float32, through which the gradient is rounded to the nearest number."""
    wide = x.astype("float32")
    if not is_recording() or is_deferred():
        return wide
    shape = wide.shape
    return _RoundedGradient()(wide) if shape else _RoundedGradient()(wide.reshape((1,))).reshape(shape)


class _RoundedGradient(mx.autograd.Function):  # type: ignore[misc]
    """The same float32 array, whose gradient is rounded to numbers of bfloat16, so that MXNet's cast is exact.

    MXNet (1.9.1, 2.0.0b1) drops the gradient of a function in Python if it has to add it to a stored one. So this one
    is never applied to a tensor of the program, but to the result of a cast. 1.9 calls `backward` in a thread where
    arrays without axes have no shape.
    """

    def forward(self, x: Any) -> Any:
        return x.detach()

    def backward(self, gradient: Any) -> Any:
        with numpy_shapes():
            return cast(gradient).astype("float32")


def _cast_on_host(x: Any) -> Any:
    """Return an array in host memory as bfloat16: NumPy rounds, and writes to the memory of a new array."""
    found = cut(x if dtype_code(x) == _FLOAT32 else x.astype("float32"))
    found.wait_to_read()
    x.wait_to_read()
    shape = tuple(x.shape)
    if prod(shape):
        values = np.asarray(ArrayMemory(x, shape, np.dtype(NAMES[dtype_code(x)]).str))
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            rounded = nearest_bfloat16(np.array(values, np.float32))
        np.asarray(ArrayMemory(found, shape, "<u2"))[...] = rounded.view(np.uint32) >> np.uint32(16)
    return found


def _round(interface: Any, x: Any) -> Any:
    """Return an array as float32, rounded to the 8 significant bits of bfloat16, ties to even.

    This is Veltkamp's splitting: of the 53 bits of a float64, a product with 2**45 + 1 leaves 8. Numbers below 2**-126
    are multiples of 2**-133, to which a sum with 2**-81 * 1.5 rounds. MXNet has no operations on the bits of floats, as
    `nearest_bfloat16` uses on NumPy's; the gradient of these is 1.

    Args:
        interface: ``mx.np`` or ``mx.nd``, to which the array belongs.
        x: An array of any dtype but bfloat16.
    """
    shape = x.shape
    wide = x.astype("float32").astype("float64")
    if len(shape) > _MOST_AXES:
        wide = wide.reshape((prod(shape),))
    scaled = wide * (2.0**45 + 1)
    rounded = scaled - (scaled - wide)
    size = interface.abs(wide)
    small = (size + 1.5 * 2.0**-81) - 1.5 * 2.0**-81
    small = interface.where(wide < 0, -small, interface.where(wide > 0, small, wide))
    rounded = interface.where(size < 2.0**128, rounded, wide)
    return interface.where(size < 2.0**-126, small, rounded).reshape(shape).astype("float32")


_MOST_AXES = 5
"""The number of axes that ``where`` takes."""


def among(args: Iterable[Any]) -> bool:
    """Return True if a tensor of bfloat16 is among arguments, and in lists and tuples among them."""
    for value in args:  # a loop: it runs in each call of a function
        if isinstance(value, _ARRAY):
            if dtype_code(value) == _BFLOAT16:
                return True
        elif isinstance(value, (list, tuple)) and among(value):
            return True
    return False


def call(name: str, fn: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Return a function's result for arguments with bfloat16 among them.

    Args:
        name: The function's name.
        fn: The function.
        args: The arguments.
        options: The arguments by name.
    """
    floats = [x for x in iter_arrays(args) if dtype_code(x) in (_BFLOAT16, _FLOAT32)]
    is_mixed = any(dtype_code(x) == _FLOAT32 for x in floats)
    result = fn(*_map(args, _BFLOAT16, widen), **options)
    if is_mixed or name == _KEEPS_DTYPE or options.get("dtype") is not None:
        return result
    return _map(result, _FLOAT32, cast)


def _map(values: Any, code: int, convert: Callable[[Any], Any]) -> Any:
    """Return values with the tensors of a dtype converted, in lists and tuples, too."""
    if isinstance(values, (list, tuple)):
        found = [_map(value, code, convert) for value in values]
        return rebuild_sequence(values, found)
    return convert(values) if hasattr(values, "handle") and dtype_code(values) == code else values
