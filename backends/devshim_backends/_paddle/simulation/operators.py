"""Wrappers around Paddle's functions while GPUs are simulated: they refuse mixed devices, and report full GPUs.

Requirements that this module meets:

* Paddle does not check devices (2.6 to 3.3; PaddlePaddle/Paddle#51706, #71667): mixed arguments are an illegal memory
  access or a silent copy on real cards, and give a result on either device on simulated GPUs.  Here they raise a
  `DeviceMismatchError`, which is a ``ValueError`` like Paddle's own refusals; see ``device_rules.py``.
* A GPU that is full, or fails, raises the same error wherever that happens, also in the middle of the backward pass.
* Paddle's faults on plug-in devices are worked around; see ``workarounds.py``.
* None of this is installed while no GPUs are simulated: every function is restored.

How it works: Paddle's Python layer calls its C++ operators through functions in its modules and through methods of its
tensors.  These functions, in every Paddle module that has them, and these methods are replaced.  A function that a
program imported from Paddle before (``from paddle import matmul``) is not reached; one that it imports under
simulation stays a wrapper, which afterwards only tests whether GPUs are simulated.
"""

from __future__ import annotations

import sys
from functools import update_wrapper
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import paddle

from devshim.devices.device import CPU
from devshim_backends._paddle.devices import core
from devshim_backends._paddle.simulation import removed_gpus, workarounds
from devshim_backends._paddle.simulation.device_rules import COPIES, Rule, place_of, tensors_in
from devshim_backends._paddle.simulation.memory import failure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devshim_backends._paddle.simulation.workarounds import Function

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
"""Methods of tensors in C++ that allocate or copy, possibly across devices."""

_OURS: dict[Any, Any] = {}
"""Paddle's own function -> the wrapper, made once."""

_METHODS: list[tuple[type, str, Any]] = []
"""Paddle's own methods, while wrappers replace them."""

_on = False


def put_in_place() -> None:
    """Replace Paddle's functions and methods by wrappers."""
    global _on
    if _on:
        return
    _on = True
    _make()
    _exchange(_OURS)
    for cls, name, made in [*_tensor_methods(), *workarounds.methods()]:
        _METHODS.append((cls, name, vars(cls)[name]))
        setattr(cls, name, made)


def put_back() -> None:
    """Restore Paddle's own functions and methods."""
    global _on
    if not _on:
        return
    _on = False
    _exchange({ours: own for own, ours in _OURS.items()})
    while _METHODS:
        setattr(*_METHODS.pop())


def _make() -> None:
    """Make a wrapper for each Paddle function that does not have one yet."""
    for module, wrap in ((paddle._C_ops, _operator), (paddle._legacy_C_ops, _legacy)):
        for name, found in vars(module).items():
            if type(found) is BuiltinFunctionType and found not in _OURS:
                _OURS[found] = wrap(name, found)
    for name, start in (("run_backward", 1), ("run_partial_grad", 2)):
        found = getattr(core.eager, name)
        if found not in _OURS.values():
            _OURS[found] = _backward(name, found, start)
    for name in paddle.nn.functional.__all__:
        found = getattr(paddle.nn.functional, name)
        if type(found) is FunctionType and found not in _OURS.values():
            _OURS[found] = workarounds.following(found)


def _exchange(functions: dict[Any, Any]) -> None:
    """Replace functions in all modules of Paddle."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "paddle" and isinstance(module, ModuleType):
            for key, value in list(vars(module).items()):
                if type(value) in (BuiltinFunctionType, FunctionType) and value in functions:
                    setattr(module, key, functions[value])


def _tensor_methods() -> Iterator[tuple[type, str, Any]]:
    own = vars(Tensor)
    for name in BINARY:
        if name in own:
            yield Tensor, name, _checked(name, own[name])
    for name in RAISING:
        if name in own:
            yield Tensor, name, _told(own[name])
    yield Tensor, "_copy_to", workarounds.copying(_told(own["_copy_to"]))
    for name in ("_getitem_dygraph", "_setitem_dygraph"):
        yield Tensor, name, _indexed(f"__{name[1:8]}__", own[name])


# ---------------------------------------------------------------- the wrappers
def _told(own: Function) -> Function:
    """Return a function that raises devshim's error when a simulated GPU fails."""

    def told(*args: Any, **kwargs: Any) -> Any:
        if removed_gpus.CHECK is not None:
            removed_gpus.require_shown((*args, *kwargs.values()))
        try:
            # Paddle 2.6 takes an empty dictionary for unknown keyword arguments.
            return own(*args, **kwargs) if kwargs else own(*args)
        except Exception as error:
            found = failure()
            if found is None:
                raise
            raise found from error

    return update_wrapper(told, own)


def _checked(name: str, own: Function) -> Function:
    """Return an operator that checks the devices of its arguments."""
    check, told = Rule(name).check, _told(own)

    def checked(*args: Any, **kwargs: Any) -> Any:
        if _on:
            check(args, kwargs)
        return told(*args, **kwargs)

    return update_wrapper(checked, own)


def _operator(name: str, own: Function) -> Function:
    if name in COPIES:
        return _told(own)
    mend = workarounds.OPERATORS.get(name)
    return _checked(name, own if mend is None else mend(own))


def _legacy(name: str, own: Function) -> Function:
    return _checked(name, workarounds.legacy(name, own))


def _indexed(name: str, own: Function) -> Function:
    """Return an index method: host tensors may index a GPU tensor, those of other GPUs may not; set values are data."""
    check, told = Rule(name).check, _told(own)

    def indexed(x: Any, item: Any, *value: Any) -> Any:
        check((x, *value, [each for each in tensors_in((item,)) if place_of(each) is not CPU]), {})
        return told(x, item, *value)

    return update_wrapper(indexed, own)


def _backward(name: str, own: Function, start: int) -> Function:
    """Return a backward pass that checks its initial gradients, its argument number `start`, against its outputs."""
    check, told = Rule(name).check, _told(own)

    def backward(*args: Any, **kwargs: Any) -> Any:
        if _on and len(args) > start:
            for output, gradient in zip(args[0] or (), args[start] or (), strict=False):
                check((output, gradient), {})
        return told(*args, **kwargs)

    return update_wrapper(backward, own)
