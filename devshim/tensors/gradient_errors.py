"""Checks and errors of `devshim.value_and_grad`, for eager and for compiled functions.

The arguments of the errors are constants, so that torch.compile can pass them on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devshim.errors import ArgumentError, NotATensorError
from devshim.errors.formatting import describe
from devshim.registry import registry
from devshim.trees.key_paths import brackets

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.contract.backend import Backend
    from devshim.trees.key_paths import Cell

__all__ = [
    "NUMBERS",
    "dtype_error",
    "framework_error",
    "no_pair_error",
    "no_tensor_error",
    "number_error",
    "position_error",
    "require_scalar",
]

NUMBERS = (bool, int, float, complex)


def require_scalar(backend: Backend, value: Any, describe_value: Callable[[Any], str]) -> None:
    """Refuse a result of the function that is not a floating scalar; ``describe_value`` describes other results."""
    if registry.backend_for(value) is not backend:
        backend.raise_error(_no_tensor, (backend, describe_value(value), isinstance(value, (tuple, list))))
    if not backend.is_scalar(value):
        backend.raise_error(_no_scalar, (backend.shape(value),))
    if not backend.are_floating((value,)):
        backend.raise_error(_result_dtype, (backend.dtype_name(value),))


def position_error(given: int, count: int) -> ArgumentError:
    """Return the error for a position at which the function was given no argument."""
    was = f"{count} argument{'' if count == 1 else 's'} by position"
    msg = f"ds.value_and_grad was asked to differentiate argument {given}, and the function was given {was}"
    return ArgumentError(msg, "pass the differentiated arguments by position; argnums counts them from 0")


def no_tensor_error(at: int, what: str) -> NotATensorError:
    """Return the error for an argument without tensors."""
    msg = f"ds.value_and_grad found nothing to differentiate in argument {at}, {what}"
    return NotATensorError(msg, "pass a tensor, a tree of tensors, or a model with trainable parameters")


def number_error(value: Any, at: int, cell: Cell | None) -> ArgumentError:
    """Return the error for a Python number among the tensors."""
    msg = f"ds.value_and_grad differentiates tensors, and found {describe(value)} {describe_leaf(at, cell)}"
    return ArgumentError(msg, "make it a tensor: ds.asarray(1.0); or pass it in an argument that is not in argnums")


def framework_error(used: Backend, other: Backend, at: int, cell: Cell) -> ArgumentError:
    """Return the error for a tensor or model of another framework than the one that differentiates."""
    titles = f"{used.title}, and found one of {other.title} {describe_leaf(at, cell)}"
    msg = f"ds.value_and_grad differentiates tensors of one framework, here {titles}"
    return ArgumentError(msg, f"ds.convert(x, {used.name!r}) converts a tensor")


def dtype_error(name: str, at: int, cell: Cell) -> ArgumentError:
    """Return the error for a tensor of a dtype that is not a floating one."""
    msg = f"ds.value_and_grad differentiates tensors of floating dtypes, and found {name} {describe_leaf(at, cell)}"
    hint = "cast it to 'float32', or pass it in an argument that is not in argnums"
    complex_hint = "pass its real and imaginary parts as two tensors, and join them in the function"
    return ArgumentError(msg, complex_hint if name.startswith("complex") else hint)


def no_pair_error(shown: str) -> ArgumentError:
    """Return the error for a function that returns no pair, as ``has_aux`` requires."""
    msg = f"with has_aux=True, ds.value_and_grad needs a function that returns (value, aux), not {shown}"
    return ArgumentError(msg, "return loss, aux; or leave has_aux out")


def _no_tensor(backend: Backend, shown: str, pair: bool) -> ArgumentError:
    """Return the error for a function that returns no tensor of the framework."""
    msg = f"ds.value_and_grad needs a function that returns a tensor of {backend.title}, not {shown}"
    return ArgumentError(
        msg, "for a function that returns (loss, aux), write has_aux=True" if pair else "return the loss"
    )


def _no_scalar(shape: tuple[int, ...]) -> ArgumentError:
    """Return the error for a function that returns a tensor with axes."""
    msg = f"ds.value_and_grad needs a function that returns a scalar, and it returned shape {shape}"
    return ArgumentError(msg, "return the sum or the mean of it")


def _result_dtype(name: str) -> ArgumentError:
    """Return the error for a function whose result has no floating dtype."""
    msg = f"ds.value_and_grad needs a function that returns a floating dtype, and it returned {name}"
    return ArgumentError(msg, "return a real loss, such as the mean of the squared error")


def describe_leaf(at: int, cell: Cell | None) -> str:
    """Return a description of the position of a leaf."""
    if cell is None:
        return f"in argument {at}"
    path = brackets(cell)
    return f"at {path} in argument {at}" if path else f"as argument {at}"
