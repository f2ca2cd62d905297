"""Functions of the array API for bfloat16, for which MXNet has few operators: they compute in float32, and round.

On the host, some of MXNet's operators for it fail on processors without AVX-512, and only when a result is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mxnet as mx

from devshim.trees.sequences import rebuild_sequence
from devshim_backends._mxnet.internals.native import BFLOAT16, CODES, dtype_code, iter_arrays

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["among", "call"]

_ARRAY = mx.nd.NDArray
_BFLOAT16, _FLOAT32 = CODES["bfloat16"], CODES["float32"]
_KEEPS_DTYPE = "astype"


def among(args: Iterable[Any]) -> bool:
    """Return True if a tensor of bfloat16 is among arguments, and in lists and tuples among them."""
    for value in args:  # a loop: it runs in each call of a function
        if isinstance(value, _ARRAY):
            if dtype_code(value) == _BFLOAT16:
                return True
        elif isinstance(value, (list, tuple)) and among(value):
            return True
    return False


def call(name: str, fn: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any], cast: Any) -> Any:
    """Return a function's result for arguments with bfloat16 among them.

    Args:
        name: The function's name.
        fn: The function.
        args: The arguments.
        options: The arguments by name.
        cast: The adapter's function that casts, and rounds to bfloat16.
    """
    floats = [x for x in iter_arrays(args) if dtype_code(x) in (_BFLOAT16, _FLOAT32)]
    is_mixed = any(dtype_code(x) == _FLOAT32 for x in floats)
    result = fn(*_map(args, _BFLOAT16, lambda x: cast(x, "float32")), **options)
    if is_mixed or name == _KEEPS_DTYPE or options.get("dtype") is not None:
        return result
    return _map(result, _FLOAT32, lambda x: cast(x, BFLOAT16))


def _map(values: Any, code: int, convert: Callable[[Any], Any]) -> Any:
    """Return values with the tensors of a dtype converted, in lists and tuples, too."""
    if isinstance(values, (list, tuple)):
        found = [_map(value, code, convert) for value in values]
        return rebuild_sequence(values, found)
    return convert(values) if hasattr(values, "handle") and dtype_code(values) == code else values
