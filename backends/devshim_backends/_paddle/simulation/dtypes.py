"""float16 and bfloat16 on simulated GPUs, and ``paddle.amp.auto_cast``.

Simulated GPUs compute with Paddle's kernels for the CPU, few of which know these dtypes. An operator with such tensors
therefore computes in float32, and rounds its results; Paddle's own casts before and after it pass gradients on. Real
GPUs compute the same way inside one kernel.

* C++ adds the gradients of a tensor that several operators use, with a kernel that the CPU lacks. So all operators
  share one float32 copy of the tensor, and the sum is of float32 (`_Wide`).
* C++ cannot cast for ``auto_cast``, because it would call the lacking kernels. `_cast_arguments` casts by Paddle's
  lists and rules instead, in the wrappers around the operators.
* An optimizer with master weights changes these, and then rounds them to the parameter.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, NamedTuple

import paddle

from devshim_backends._paddle.devices import core
from devshim_backends._paddle.simulation.device_rules import tensors_in
from devshim_backends._paddle.simulation.internals import list_names

__all__ = ["auto_cast_scope", "compute_in_float32", "is_auto_casting", "note_backward"]

Tensor = core.eager.Tensor
Function = Any
"""A Paddle function, of any signature."""

_LOW = (paddle.float16, paddle.bfloat16)
_FLOAT32 = paddle.float32
_FLOAT16, _BFLOAT16 = _LOW
_cast = paddle._C_ops.cast  # the original: this module is imported before the wrappers are installed

_FLOATS = frozenset({"FLOAT16", "BFLOAT16", "FLOAT32", "FLOAT64"})

_NATIVE = frozenset(
    {
        *("full_like", "empty_like", "assign_out_", "share_data", "copy_to", "set_value_", "fill_"),
        *("view_dtype", "view_shape"),  # see ``tensors.py``
        *("as_strided", "set_", "tensor_unfold"),  # see ``internals/strided.py``
    }
)
"""Operators that need no float32: they work with all dtypes, and no kernel computes their gradient."""

_NEVER_CAST = frozenset({"cast", "contiguous"})
"""Operators whose arguments ``auto_cast`` does not cast, besides those that work in place."""

_LEGACY_IN_PLACE = frozenset({"check_finite_and_unscale", "update_loss_scaling"})
"""Operators of the old kind that write to their arguments."""

_NORMS = frozenset({"batch_norm", "batch_norm_", "layer_norm", "sync_batch_norm", "sync_batch_norm_"})
"""Operators whose first argument is the only one that ``auto_cast`` casts; none of them writes to it."""

_CREATED = frozenset({"arange", "eye", "linspace", "logspace", "range_v2", "truncated_gaussian_random"})
"""Operators that create tensors, and whose kernels for the CPU lack these dtypes."""

_MASTER_POSITIONS = {
    "sgd_": (3, 4),
    "momentum_": (4, 9),
    "adam_": (8, 15),
    "adamw_": (8, 18),
    "lamb_": (7, 14),
    "rmsprop_": (6, 11),
    "adagrad_": (4, 6),
}
"""Operator of an optimizer -> the positions of the master weights, and of the flag that there are some."""


class _AutoCast(NamedTuple):
    """The rules of the innermost ``auto_cast``."""

    dtype: Any
    white: frozenset[str]
    black: frozenset[str]
    unlisted: Any
    """The dtype for operators in neither list, or None for the widest dtype of their arguments."""


_STATE: ContextVar[_AutoCast | None] = ContextVar("devshim_paddle_auto_cast", default=None)


def is_auto_casting() -> bool:
    """Return True inside ``auto_cast`` on a simulated GPU."""
    return _STATE.get() is not None


@contextmanager
def auto_cast_scope(native_scope: Any, dtype: Any) -> Iterator[None]:
    """Enter Paddle's own scope, but cast here instead of in C++."""
    name = getattr(dtype, "name", dtype).lower()
    with native_scope:
        tracer = paddle.base.framework._dygraph_tracer()
        white, black = tracer._get_amp_op_list()
        low = paddle.bfloat16 if name == "bfloat16" else paddle.float16
        level, levels = tracer._amp_level, core.AmpLevel
        unlisted = _FLOAT32 if level == levels.OD else low if level == levels.O2 and not tracer._use_promote else None
        rules = _AutoCast(low, frozenset(white), frozenset(black), unlisted)
        tracer._amp_level = levels.O0  # Paddle's scope restores the level from before
        token = _STATE.set(None if level == levels.O0 else rules)
        try:
            yield
        finally:
            _STATE.reset(token)


# ---------------------------------------------------------------- copies in float32
def _is_low(x: Any) -> bool:
    """Return True for a tensor of low precision.

    `is` takes a tenth of the time of ``==`` between Paddle's dtypes, but Paddle 3.0 makes a new one at each look.
    """
    dtype = x.dtype
    return dtype is _FLOAT16 or dtype is _BFLOAT16 or (dtype is not x.dtype and dtype in _LOW)


class _Wide(NamedTuple):
    """The float32 copy of a tensor, for all operators that use the tensor before it changes or a gradient is taken."""

    copy: Any
    version: int
    backward: int


_BACKWARD_PASSES = 0


def note_backward() -> None:
    """Forget all shared copies: the graph behind them may be gone after a backward pass."""
    global _BACKWARD_PASSES
    _BACKWARD_PASSES += 1


def _widen(x: Any) -> Any:
    """Return a value, with a tensor of low precision in float32."""
    if not _is_low(x):
        return x
    if x.stop_gradient or not paddle.is_grad_enabled():
        return _cast(x, _FLOAT32)
    known: _Wide | None = getattr(x, "_devshim_wide", None)
    passes = _BACKWARD_PASSES  # another thread may add one
    if known is None or known.version != x.inplace_version or known.backward != passes:
        known = x._devshim_wide = _Wide(_cast(x, _FLOAT32), x.inplace_version, passes)
    return known.copy


def _map(values: Any, function: Function) -> Any:
    """Return values with a function applied to each tensor, including in lists and tuples."""
    if isinstance(values, Tensor):
        return function(values)
    if type(values) in (list, tuple):
        return type(values)([_map(value, function) for value in values])
    return values


# ---------------------------------------------------------------- the wrapper
def compute_in_float32(name: str, operator: Function) -> Function:
    """Return an operator that casts as ``auto_cast`` does, and computes tensors of low precision in float32."""
    is_method, is_norm = name.startswith("_"), name in _NORMS
    is_in_place = name in _LEGACY_IN_PLACE or (name.endswith("_") and not is_method and not is_norm)

    @wraps(operator)
    def call(*args: Any, **kwargs: Any) -> Any:
        if name in _NATIVE:
            return operator(*args, **kwargs)
        rules = _STATE.get()
        if rules is not None and name not in _NEVER_CAST and not is_in_place:  # as in C++
            if name == "linear" and list_names.is_linear_two_operators(args):
                return paddle._C_ops.add(paddle._C_ops.matmul(*args[:2], False, False), args[2])
            args, kwargs = _cast_arguments(rules, name, args, kwargs)
        tensors = list(tensors_in((*args, *kwargs.values()) if kwargs else args))
        low = next((x for x in tensors if _is_low(x) and x.place.is_custom_place()), None)
        if low is None:
            return _create(operator, args, kwargs) if name in _CREATED else operator(*args, **kwargs)
        if is_in_place:
            return _compute_in_place(name, operator, args, kwargs)
        dtype, (args, kwargs) = _result_dtype(args, kwargs, low.dtype)
        results = operator(*_map(args, _widen), **{key: _map(value, _widen) for key, value in kwargs.items()})
        if name == "cast" or dtype is None:
            return results
        if any(x.dtype == _FLOAT32 for x in tensors) and type(results) in (list, tuple):
            return type(results)([_narrow(results[0], dtype), *results[1:]])  # the statistics of a normalization
        return _map(results, lambda x: _narrow(x, dtype))

    return call


def _create(operator: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the tensor that an operator creates, computed in float32 if its dtype is one of low precision."""
    named = next((x for x in args if isinstance(x, core.DataType)), None)
    is_on_gpu = any(isinstance(x, core.Place) and x.is_custom_place() for x in args)
    if named not in _LOW or not is_on_gpu or kwargs.get("out") is not None:
        return operator(*args, **kwargs)
    wide = _map(args, lambda x: _cast(x, _FLOAT32) if _is_low(x) else x)
    return _cast(operator(*(_FLOAT32 if isinstance(x, core.DataType) else x for x in wide), **kwargs), named)


def _narrow(x: Any, dtype: Any) -> Any:
    """Return a result of float32 in another dtype, and one without memory, such as einsum's cache, as it is."""
    if not isinstance(x, Tensor) or x.dtype != _FLOAT32:
        return x
    # A tensor without elements reports that it is not initialized.
    return _cast(x, dtype) if x._is_initialized() or x._is_dense_tensor_hold_allocation() else x


def _result_dtype(args: Any, kwargs: Any, dtype: Any) -> tuple[Any, Any]:
    """Return the dtype to round to, or None if an argument names another float, and arguments that name float32.

    A dtype of integers is that of indices, as in ``unique``.
    """
    named = next((x for x in (*args, *kwargs.values()) if isinstance(x, core.DataType) and x.name in _FLOATS), None)
    if named is None:
        return dtype, (args, kwargs)
    if named not in _LOW:
        return None, (args, kwargs)

    def replace(x: Any) -> Any:
        return _FLOAT32 if isinstance(x, core.DataType) and x == named else x

    return named, (tuple(map(replace, args)), {key: replace(value) for key, value in kwargs.items()})


def _cast_arguments(rules: _AutoCast, name: str, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Return the arguments as ``auto_cast`` casts them."""
    listed = list_names.name_in_lists(name, args)
    if name in _NORMS:
        chosen = _choose_dtype(rules, listed, [args[0]])
        return (_map(args[0], lambda x: _to_dtype(x, chosen)), *args[1:]), kwargs
    chosen = _choose_dtype(rules, listed, list(tensors_in((*args, *kwargs.values()))))

    def convert(x: Any) -> Any:
        return _to_dtype(x, chosen)

    return _map(args, convert), {key: _map(value, convert) for key, value in kwargs.items()}


def _choose_dtype(rules: _AutoCast, name: str, tensors: list[Any]) -> Any:
    """Return the dtype of the operator's arguments, given its name in the lists."""
    if name in rules.black:
        return _FLOAT32
    if name in rules.white:
        return rules.dtype
    if rules.unlisted is not None:
        return rules.unlisted
    return _FLOAT32 if any(x.dtype == _FLOAT32 for x in tensors) else rules.dtype


def _to_dtype(x: Any, dtype: Any) -> Any:
    if dtype == _FLOAT32:
        return _widen(x)
    is_gpu = x.dtype == _FLOAT32 and x.place.is_custom_place()
    return _cast(x, dtype) if is_gpu else x


def _compute_in_place(name: str, operator: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute on float32 copies, and round them to the arguments; an optimizer changes its master weights instead."""
    position, flag = _MASTER_POSITIONS.get(name, (None, None))
    wide = {id(x): _cast(x.detach(), _FLOAT32) for x in tensors_in((*args, *kwargs.values())) if _is_low(x)}
    if position is not None and len(args) > position and isinstance(args[position], Tensor):
        wide[id(args[0])] = args[position]
        changed = {position: None, flag: False}
        args = tuple(changed.get(n, x) for n, x in enumerate(args))
    originals = {id(x): x for x in tensors_in((*args, *kwargs.values())) if id(x) in wide}

    def convert(x: Any) -> Any:
        return wide.get(id(x), x)

    results = operator(*_map(args, convert), **{key: _map(value, convert) for key, value in kwargs.items()})
    by_copy = {id(wide[key]): x for key, x in originals.items()}
    for key, x in originals.items():
        x.detach().copy_(_cast(wide[key].detach(), x.dtype), True)
    return _map(results, lambda x: by_copy.get(id(x), x))
