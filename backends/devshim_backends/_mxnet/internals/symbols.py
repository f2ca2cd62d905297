"""Functions of the array API on symbols. MXNet 1.9 compiles a block with them, and they have no shape and dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mxnet as mx

from devshim.errors import TracingError

if TYPE_CHECKING:
    from collections.abc import Callable

_SAME = (
    *("cos", "cosh", "exp", "expm1", "log", "log10", "log1p", "log2", "sin", "sinh", "sqrt", "tan", "tanh", "abs"),
    *("negative", "sign", "ceil", "floor", "trunc", "square", "add", "subtract", "multiply", "maximum", "minimum"),
    "where",
)


def _make_reduction(fn: Callable[..., Any]) -> Callable[..., Any]:
    def reduce(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
        return fn(x, axis=axis, keepdims=keepdims)

    return reduce


def _functions() -> dict[str, Callable[..., Any]]:
    inside = mx.sym.np
    return {
        **{name: getattr(inside, name) for name in _SAME if hasattr(inside, name)},
        **{name: _make_reduction(getattr(inside, name)) for name in ("sum", "max", "min", "mean")},
        "divide": inside.true_divide,
        "pow": inside.power,
        "remainder": inside.mod,
        "matmul": inside.matmul,
        "matrix_transpose": lambda x, /: inside.swapaxes(x, -1, -2),
        "permute_dims": lambda x, /, axes: inside.transpose(x, axes),
        "reshape": lambda x, /, shape, *, copy=None: inside.reshape(x, shape),
        "expand_dims": lambda x, /, axis=0: inside.expand_dims(x, axis),
        "concat": lambda arrays, /, *, axis=0: inside.concatenate(list(arrays), axis),
        "stack": lambda arrays, /, *, axis=0: inside.stack(list(arrays), axis),
    }


def among(values: Any) -> bool:
    """Return True if there is a symbol among arguments, or in lists and tuples among them."""
    for x in values:  # noqa: SIM110  # a generator would take as long as all of this
        if isinstance(x, mx.sym.Symbol) or (type(x) in (list, tuple) and among(x)):
            return True
    return False


def call(name: str, args: Any, options: Any) -> Any:
    """Return a function's result for symbols."""
    found = _functions().get(name)
    if found is None:
        msg = f"xp.{name} needs the shape or dtype of its arguments, which symbols of MXNet 1.9 do not have"
        raise TracingError(msg, "call it outside the hybridized block, or do not hybridize the block")
    return found(*args, **options)
