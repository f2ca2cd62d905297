"""What Paddle's own operators refuse while GPUs are simulated: arguments on different devices, and full cards.

Requirements this module answers:

* Paddle checks no placement (2.6 to 3.3; PaddlePaddle/Paddle#51706, #71667): on real cards mixed arguments are an
  illegal memory access or a silent copy, on simulated ones a result on either.  Here they are a
  `DeviceMismatchError`, which is a ``ValueError`` as Paddle's own refusals are.
* What mixes on real cards mixes here: see ``mixing.py``.
* A card that runs full says the same wherever that happens, in the middle of the backward pass, too.
* Nothing of this is there while no GPUs are simulated: every function is put back.

How: Paddle's Python layer calls its C++ operators by functions that it holds in its modules, and by the methods of its
tensors.  Those functions are exchanged, wherever a module of Paddle's has one of them, and those methods.  What a
program took out of Paddle's modules before (``from paddle import matmul``) is not reached; what it takes out under
simulation asks, ever after, whether there is something to refuse.
"""

from __future__ import annotations

import sys
from functools import update_wrapper
from types import BuiltinFunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import paddle

from devshim.device import CPU
from devshim_backends._paddle.cards import failure
from devshim_backends._paddle.devices import core
from devshim_backends._paddle.mixing import COPIES, Rule, place_of, tensors_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["put_back", "put_in_place"]

Tensor = core.eager.Tensor

BINARY = tuple(
    f"__{name}__"
    for name in (
        *("add", "radd", "sub", "rsub", "mul", "rmul", "div", "rdiv", "truediv", "rtruediv", "floordiv", "rfloordiv"),
        *("pow", "rpow", "mod", "rmod", "matmul", "rmatmul", "gt", "ge", "lt", "le", "eq", "ne"),
    )
)
"""Methods of tensors that compute in C++."""

RAISING = ("__init__", "_apply_backward_hook", "clone", "contiguous", "copy_", "numpy", "_copy_gradient_from")
"""Methods of tensors in C++ that allocate or copy, and may do so across devices."""

_WRAPPED: dict[Any, Any] = {}
"""Paddle's own function -> ours, made once."""

_METHODS: dict[str, Any] = {}
"""Paddle's own methods, while ours are in their place."""

_on = False


def put_in_place() -> None:
    """Exchange Paddle's functions and methods for those that refuse."""
    global _on
    if _on:
        return
    _on = True
    for module in (paddle._C_ops, paddle._legacy_C_ops):
        for name, found in vars(module).items():
            if type(found) is BuiltinFunctionType and found not in _WRAPPED:
                _WRAPPED[found] = _checked(name, found)
    for name in ("run_backward", "run_partial_grad"):
        found = getattr(core.eager, name)
        _WRAPPED.setdefault(found, _told(found))
    _exchange(_WRAPPED)
    for name, made in _methods():
        _METHODS[name] = vars(Tensor).get(name)
        setattr(Tensor, name, made)


def put_back() -> None:
    """Give Paddle its own functions and methods back."""
    global _on
    if not _on:
        return
    _on = False
    _exchange({ours: own for own, ours in _WRAPPED.items()})
    for name, own in _METHODS.items():
        setattr(Tensor, name, own)
    _METHODS.clear()


def _exchange(functions: dict[Any, Any]) -> None:
    """Replace functions in all of Paddle's modules."""
    kinds = {type(function) for function in functions}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "paddle" and isinstance(module, ModuleType):
            for key, value in list(vars(module).items()):
                if type(value) in kinds and value in functions:
                    setattr(module, key, functions[value])


def _methods() -> Iterator[tuple[str, Any]]:
    """Ours in the place of the tensors' methods."""
    for name in BINARY:
        if name in vars(Tensor):
            yield name, _checked(name, vars(Tensor)[name])
    for name in RAISING:
        if name in vars(Tensor):
            yield name, _told(vars(Tensor)[name])
    yield "_copy_to", _copying(vars(Tensor)["_copy_to"])
    for name in ("_getitem_dygraph", "_setitem_dygraph"):
        yield name, _indexed(f"__{name[1:8]}__", vars(Tensor)[name])


# ---------------------------------------------------------------- the functions put in place
def _told(own: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose failure on a simulated card is told as devshim tells it."""

    def told(*args: Any, **kwargs: Any) -> Any:
        try:
            return own(*args, **kwargs)
        except Exception as error:
            _raise_failure(error)
            raise

    return update_wrapper(told, own)


def _checked(name: str, own: Callable[..., Any]) -> Callable[..., Any]:
    """An operator that looks where its arguments are."""
    if name in COPIES:
        return _told(own)
    check = Rule(name).check

    def checked(*args: Any, **kwargs: Any) -> Any:
        if _on:
            check(args, kwargs)
        try:
            return own(*args, **kwargs)
        except Exception as error:
            _raise_failure(error)
            raise

    return update_wrapper(checked, own)


def _indexed(name: str, own: Callable[..., Any]) -> Callable[..., Any]:
    """Indexing: the host's tensors may index a card's, other cards' may not, and what is set is data."""
    check = Rule(name).check

    def indexed(x: Any, item: Any, *value: Any) -> Any:
        check((x, *value, [each for each in tensors_in((item,)) if place_of(each) is not CPU]), {})
        try:
            return own(x, item, *value)
        except Exception as error:
            _raise_failure(error)
            raise

    return update_wrapper(indexed, own)


def _copying(own: Callable[..., Any]) -> Callable[..., Any]:
    """A copy; of a tensor without memory it is that tensor.

    Paddle's ``Layer.to`` copies the state of dropout that an LSTM has before its first call, which has none (2.6, 3.3).
    """

    def copying(x: Any, *args: Any, **kwargs: Any) -> Any:
        if not x._is_initialized() and 0 not in x.shape:  # which is what an empty tensor says of itself, too
            return x
        try:
            return own(x, *args, **kwargs)
        except Exception as error:
            _raise_failure(error)
            raise

    return update_wrapper(copying, own)


def _raise_failure(error: Exception) -> None:
    found = failure()
    if found is not None:
        raise found from error
