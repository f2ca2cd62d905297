"""The fast path of every call that makes a tensor: a new tensor in host memory, while all settings have their defaults.

Most programs make most tensors in one way: in host memory, by the framework that `use` chose, without observers. For
these calls, the checks and choices take as long as making the tensor. `make` therefore checks everything that the slow
path (`devshim.tensors.plans.plan`, `devshim.transfers.engine.make`) checks, in one frame:

| what may differ | where it is read | who changes it |
|---|---|---|
| a ledger, guard, fault or `explain` is open | `observing.ACTIVE` | `transfers`, `guard`, `simulate`, `explain` |
| the default dtypes | `default_dtypes.CHOSEN` | `set_default_dtype` |
| a compiler reads the code | `tracing.reading` | torch.compile |
| a compiler runs the code | the type of the result (`FastPaths.host_type`) | `torch.export` |
| the default device | `default_devices`, environment | `on`, `set_device`, `run`, `value_and_grad`, DEVSHIM_DEVICE |
| a default device in compiled code | `current.usual_backend`, then None | `on` in a function that is compiled |
| the framework | `current.usual_backend`, `current.CHOSEN` | `use`, `using` |

No answer is cached: each is one global, one dict lookup or one context variable, so the next call sees every change. If
any of them differs, or a backend was chosen by the environment, `current.backend_on_host` checks again. If it finds
another device or framework, if an argument is unusual, or if the framework fails, `make` returns None. The caller then
takes the slow path, which repeats all checks and reports what is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from devshim.devices.device import CPU
from devshim.registry import current, default_devices, environment, registry, tracing
from devshim.tensors import arguments, default_dtypes, fitting
from devshim.transfers import observing

if TYPE_CHECKING:
    from devshim.contract.backend import Backend, Tensor

__all__ = ["COPY", "are_numbers", "copy_array", "is_short_range", "is_small", "make", "make_like"]

_FEW, _SHORT = 4, 2**14
"""The maximum rank and length of a shape whose elements every framework can count."""
_NUMBERS, _REALS = frozenset({bool, int, float, complex}), frozenset({int, float})
_SMALL = 2**31
"""Integers below this number fit the default integer dtype of every framework."""
_PLAIN_DTYPES = {dtype: dtype for dtype in map(np.dtype, (*"?bhiBHIefdFD", "int64", "uint64"))}
"""NumPy's numbers in the machine's byte order; an equal dtype that is another object may have metadata.

NumPy has two equal dtypes for each integer of 64 bits. An array has the one that NumPy also finds by name.
"""
_DTYPES: dict[tuple[str, object], Any] = {}
"""A backend's name and a dtype as the user writes it -> the framework's dtype; only dtypes that exist."""

COPY = "from_numpy"
"""The only call that takes an array, and no dtype."""


def make(
    call: str, args: tuple[Any, ...], shape: tuple[int, ...], dtype: object, device: object, *more: Any
) -> Tensor | None:
    """Return a new tensor, or None if the slow path must make it or raise the error.

    Args:
        call: The adapter's method, such as ``"ones"``.
        args: Its arguments before the dtype. The caller has checked them, except for the shape, the array of `COPY`,
            and if the numbers fit the dtype.
        shape: The shape that the user gave, whose lengths are checked here; empty if the call has none.
        dtype: The dtype that the user gave, or None.
        device: The device that the user gave, or None.
        *more: The arguments after the device, of a call that no adapter lists in `FastPaths.host_makers`.
    """
    if observing.ACTIVE is not None or (dtype is None and default_dtypes.CHOSEN and call != COPY):
        return None
    reading = tracing.reading
    if reading is not None and reading():
        return None
    backend = current.usual_backend
    if (
        backend is None
        or device is not None
        or default_devices.DEFAULT.get() is not None
        or current.CHOSEN.get()
        or environment.DEVICE in environment.VALUES
    ):
        backend = current.backend_on_host(device)
    if backend is None or len(shape) > _FEW or (call == COPY and not _is_plain(args[0])):
        return None
    for size in shape:
        if type(size) is not int or not 0 <= size <= _SHORT:
            return None
    fast = backend.fast_paths
    try:
        if dtype is not None:
            native = _DTYPES.get((backend.name, dtype)) or _read_dtype(backend, dtype)
            if call in fitting.CALLS:
                fitting.require_fit(call, args, dtype if type(dtype) is str else arguments.dtype_name(backend, dtype))
            x = getattr(backend, call)(*args, native, CPU, *more)
        elif (maker := fast.host_makers.get(call)) is not None:
            x = maker(*args)
        elif call == COPY:
            x = None if backend.compiling() else backend.from_numpy(args[0], CPU, True)
        else:
            x = getattr(backend, call)(*args, None, CPU, *more)
        if fast.host_type is None:
            return x if backend.device_of(x) is CPU else None
        return x if type(x) is fast.host_type and (not fast.host_flag or getattr(x, fast.host_flag) is True) else None
    except Exception:  # the slow path fails in the same way, with a reason
        return None


def copy_array(backend: Backend, array: np.ndarray) -> Tensor | None:
    """Return a tensor of a framework in host memory with an array's values, or None, as `make` does."""
    if observing.ACTIVE is not None or not _is_plain(array) or backend.compiling():
        return None
    fast = backend.fast_paths
    try:
        x = backend.from_numpy(array, CPU, True)
        if fast.host_flag:
            return x if type(x) is fast.host_type and getattr(x, fast.host_flag) is True else None
        return x if backend.device_of(x) is CPU else None
    except Exception:  # the slow path fails in the same way, with a reason
        return None


def make_like(call: str, x: Any, *value: Any) -> Tensor | None:
    """Return a tensor with the shape, dtype and framework of a tensor in host memory, or None, as `make` does.

    The settings that `make` reads do not matter here, except for observers and compilers.

    Args:
        call: The adapter's method, such as ``"ones"``.
        x: The tensor.
        *value: The method's argument between the shape and the dtype, if it has one.
    """
    backend, reading = registry.TENSORS.get(type(x)), tracing.reading
    if backend is None or observing.ACTIVE is not None or (reading is not None and reading()):
        return None
    fast = backend.fast_paths
    flag, maker = fast.host_flag, fast.host_makers.get(f"{call}_like")
    try:
        if getattr(x, flag) is not True if flag else backend.device_of(x) is not CPU:
            return None
        if maker is None:
            name = backend.dtype_name(x)
            native = _DTYPES.get((backend.name, name)) or _read_dtype(backend, name)
            if value:
                fitting.require_fit(call, (x, *value), name)
            made = getattr(backend, call)(backend.shape(x), *value, native, CPU)
        else:
            made = maker(x)
        if fast.host_type is None:
            return made if backend.device_of(made) is CPU else None
        return made if type(made) is fast.host_type and (not flag or getattr(made, flag) is True) else None
    except Exception:  # the slow path fails in the same way, with a reason
        return None


def _read_dtype(backend: Backend, dtype: object) -> Any:
    """Return the framework's dtype for one in any form, and remember it."""
    found = _DTYPES[backend.name, dtype] = arguments.dtype(backend, dtype)
    return found


def are_numbers(obj: Any) -> bool:
    """Return True for a Python number, and for lists and lists of lists of them."""
    kind = type(obj)
    if kind is not list and kind is not tuple:
        return kind in _NUMBERS
    if _NUMBERS.issuperset(map(type, obj)):
        return True
    for row in obj:
        if (type(row) is not list and type(row) is not tuple) or not _NUMBERS.issuperset(map(type, row)):
            return False
    return True


def is_small(value: Any) -> bool:
    """Return True for a number that every framework can store in its default dtype: a float, bool or short int."""
    kind = type(value)
    return kind is float or kind is bool or (kind is int and -_SMALL < value < _SMALL)


def is_short_range(start: Any, stop: Any, step: Any) -> bool:
    """Return True for the arguments of `arange` that are small finite numbers, and give a countable length."""
    if not (type(start) in _REALS and type(stop) in _REALS and type(step) in _REALS and step):
        return False
    if not (-_SMALL < start < _SMALL and -_SMALL < stop < _SMALL and -_SMALL < step < _SMALL):
        return False
    return bool((stop - start) / step < _SMALL)


def _is_plain(array: np.ndarray) -> bool:
    """Return True for an array of numbers that any framework can read."""
    if type(array) is not np.ndarray:
        return False
    kind = array.dtype
    return _PLAIN_DTYPES.get(kind) is kind
