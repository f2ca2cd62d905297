"""Wrappers around Paddle's operators and tensor methods, installed while GPUs are simulated.

The simulated GPUs are a plug-in without kernels (``internals/plugin.py``): Paddle computes for them on the host, and
does not check that the arguments of an operator are on one device (3.0 to 3.3; PaddlePaddle/Paddle#51706, #71667). Its
Python layer calls C++ through functions in its modules and through methods of its tensors. `install` replaces each of
these by a wrapper, which does three things:

1. It refuses tensors on different devices (``device_rules.py``). On real GPUs they are an illegal memory access or a
   silent copy. The error is a `DeviceMismatchError`, which is a ``ValueError`` like Paddle's own.
2. It calls the original, or a workaround for a fault on plug-in devices (``workarounds.py``).
3. If a simulated GPU is full or has failed, it raises devshim's error, even in the middle of a backward pass. The same
   for an operator that Paddle's build for the CPU lacks (``internals/missing_kernels.py``).

`uninstall` restores every function. A function that a program imported from Paddle before (``from paddle import
matmul``) is not replaced; one that it imports under simulation stays a wrapper, which afterwards only tests whether
GPUs are simulated.
"""

from __future__ import annotations

import sys
from functools import wraps
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import paddle

from devshim.devices.device import CPU
from devshim_backends._paddle.devices import core
from devshim_backends._paddle.simulation import dtypes, removed_gpus, workarounds
from devshim_backends._paddle.simulation.device_rules import COPIES, Rule, device_or_none, tensors_in
from devshim_backends._paddle.simulation.internals import error_texts, missing_kernels, no_elements
from devshim_backends._paddle.simulation.memory import SIMULATED, take_failure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devshim_backends._paddle.simulation.workarounds import Function

__all__ = ["install", "uninstall"]

Tensor = core.eager.Tensor

BINARY_METHODS = tuple(
    f"__{name}__"
    for name in (
        *("add", "radd", "sub", "rsub", "mul", "rmul", "div", "rdiv", "truediv", "rtruediv", "floordiv", "rfloordiv"),
        *("pow", "rpow", "mod", "rmod", "matmul", "rmatmul", "gt", "ge", "lt", "le", "eq", "ne"),
    )
)
"""Methods of tensors that compute in C++."""

ALLOCATING_METHODS = (
    "__init__",
    "_apply_backward_hook",
    "copy_",
    "numpy",
    "_copy_gradient_from",
)
"""Methods of tensors in C++ that allocate or copy, possibly across devices."""

_GRADIENTS = "run_partial_grad"
"""Paddle's function that returns gradients."""

_WRAPPERS: dict[Any, Any] = {}
"""Paddle's function -> its wrapper, made once."""

_ORIGINAL_METHODS: list[tuple[type, str, Any]] = []
"""Paddle's methods, while wrappers replace them."""

_installed = False


def install() -> None:
    """Replace Paddle's functions and methods by wrappers."""
    global _installed
    if _installed:
        return
    _installed = True
    _wrap_functions()
    _replace_in_modules(_WRAPPERS)
    for cls, name, wrapper in [*_wrap_tensor_methods(), *no_elements.wrap_gradients(), *workarounds.wrap_methods()]:
        _ORIGINAL_METHODS.append((cls, name, vars(cls)[name]))
        setattr(cls, name, wrapper)


def uninstall() -> None:
    """Restore Paddle's functions and methods."""
    global _installed
    if not _installed:
        return
    _installed = False
    _replace_in_modules({wrapper: original for original, wrapper in _WRAPPERS.items()})
    while _ORIGINAL_METHODS:
        setattr(*_ORIGINAL_METHODS.pop())


def _wrap_functions() -> None:
    """Make a wrapper for each Paddle function that does not have one yet."""
    for module, wrap in ((paddle._C_ops, _wrap_operator), (paddle._legacy_C_ops, _wrap_legacy_operator)):
        for name, function in vars(module).items():
            if type(function) is BuiltinFunctionType and function not in _WRAPPERS:
                _WRAPPERS[function] = wrap(name, function)
    for name, position in (("run_backward", 1), (_GRADIENTS, 2)):
        function = getattr(core.eager, name)
        if function not in _WRAPPERS.values():
            _WRAPPERS[function] = _wrap_backward(name, function, position)
    if paddle.unflatten not in _WRAPPERS.values():
        _WRAPPERS[paddle.unflatten] = workarounds.read_shape(paddle.unflatten)
    for name in paddle.nn.functional.__all__:
        function = getattr(paddle.nn.functional, name)
        if type(function) is FunctionType and function not in _WRAPPERS.values():
            _WRAPPERS[function] = workarounds.use_argument_device(function)


def _replace_in_modules(replacements: dict[Any, Any]) -> None:
    """Replace functions in all modules of Paddle."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "paddle" and isinstance(module, ModuleType):
            for key, value in list(vars(module).items()):
                if type(value) in (BuiltinFunctionType, FunctionType) and value in replacements:
                    setattr(module, key, replacements[value])


def _wrap_tensor_methods() -> Iterator[tuple[type, str, Any]]:
    methods = vars(Tensor)
    for name in (*BINARY_METHODS, "clone", "contiguous"):
        if name in methods:
            yield Tensor, name, _check_devices(name, dtypes.compute_in_float32(name, methods[name]))
    for name in ALLOCATING_METHODS:
        if name in methods:
            yield Tensor, name, _report_failures(methods[name])
    yield Tensor, "_copy_to", workarounds.copy_without_memory(_report_failures(methods["_copy_to"]))
    for name in ("_getitem_dygraph", "_setitem_dygraph"):
        yield Tensor, name, _wrap_index_method(f"__{name[1:8]}__", methods[name])


# ---------------------------------------------------------------- the wrappers
def _report_failures(function: Function) -> Function:
    """Return a function that raises devshim's error if a simulated GPU fails, or was removed."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if removed_gpus.CHECK is not None:
            removed_gpus.refuse_removed((*args, *kwargs.values()))
        try:
            # Paddle 3.0 takes an empty dictionary for unknown keyword arguments.
            result = function(*args, **kwargs) if kwargs else function(*args)
        except Exception as error:
            failure = take_failure() or missing_kernels.refusal(error, function.__name__, (*args, *kwargs.values()))
            if failure is None:
                error_texts.rename(error)
                raise
            try:
                raise failure from error
            finally:
                del failure  # its traceback has this frame: the arguments would stay alive until a garbage collection
        if SIMULATED.dtypes_lacking:
            _refuse_dtypes(args[:1] if result is None else (result,))  # `Tensor.__init__` returns None
        return result

    return call


def _refuse_dtypes(values: tuple[Any, ...]) -> None:
    """Raise for a tensor of a dtype that its simulated GPU cannot hold."""
    for x in tensors_in(values):
        device, name = device_or_none(x), str(x.dtype).removeprefix("paddle.")
        if name in SIMULATED.dtypes_lacking and device is not None and device is not CPU:
            SIMULATED.refuse_dtype(device, name)


def _check_devices(name: str, function: Function) -> Function:
    """Return an operator that checks the devices of its arguments."""
    check, compute = Rule(name).check, _report_failures(function)
    returns_host = name in no_elements.HOST_RESULTS

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if _installed and not returns_host:
            check(args, kwargs)
            return no_elements.return_results(compute(*args, **kwargs), args)
        return compute(*args, **kwargs)

    return call


def _wrap_operator(name: str, operator: Function) -> Function:
    if name in COPIES:
        copy = _report_failures(operator)
        return no_elements.keep_arguments(copy) if name == "assign_out_" else copy
    workaround = workarounds.OPERATORS.get(name)
    operator = dtypes.compute_in_float32(name, operator if workaround is None else workaround(operator))
    return _check_devices(name, no_elements.keep_arguments(operator) if name.endswith("_") else operator)


def _wrap_legacy_operator(name: str, operator: Function) -> Function:
    return _check_devices(name, dtypes.compute_in_float32(name, workarounds.return_to_gpu(name, operator)))


def _wrap_index_method(name: str, method: Function) -> Function:
    """Return an index method: host tensors may index a GPU tensor, those of other GPUs may not; set values are data."""
    check, compute = Rule(name).check, _report_failures(method)
    reads = name == "__getitem__"
    compute = dtypes.compute_in_float32(name, compute) if reads else no_elements.keep_arguments(compute)

    @wraps(method)
    def call(x: Any, item: Any, *value: Any) -> Any:
        check((x, *value, [index for index in tensors_in((item,)) if device_or_none(index) is not CPU]), {})
        return no_elements.return_results(compute(x, item, *value), (x,))

    return call


def _wrap_backward(name: str, function: Function, position: int) -> Function:
    """Return a backward pass that checks its outputs against their gradients, which are its argument at a position."""
    check, compute = Rule(name).check, _report_failures(function)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        simulated = _installed
        if simulated and len(args) > position:
            for output, gradient in zip(args[0] or (), args[position] or (), strict=False):
                check((output, gradient), {})
        dtypes.note_backward()
        results = compute(*args, **kwargs)
        return no_elements.return_gradients(results, args[1]) if name == _GRADIENTS and simulated else results

    return call
