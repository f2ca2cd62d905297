"""The fast path of every call that makes a tensor: a new tensor in host memory, while all settings have their defaults.

Most programs make most tensors in one way: in host memory, by the framework that `use` chose, without observers. For
these calls, the checks and choices take as long as making the tensor. `make` therefore checks everything that the slow
path (`devshim.tensors.arguments.plan`, `devshim.transfers.engine.make`) checks, in one frame:

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
from devshim.registry import current, default_devices, environment, tracing
from devshim.tensors import arguments, default_dtypes, fitting
from devshim.transfers import observing

if TYPE_CHECKING:
    from devshim.contract.backend import Backend, Tensor

__all__ = ["COPY", "DRAW", "FILL", "SHAPED", "VALUES", "are_numbers", "is_small", "make"]

_FEW, _SHORT = 4, 2**14
"""The maximum rank and length of a shape whose elements every framework can count."""
_NUMBERS = frozenset({bool, int, float, complex})
_PLAIN_DTYPES = {dtype: dtype for dtype in map(np.dtype, (*"?bhiBHIefdFD", "int64", "uint64"))}
"""NumPy's numbers in the machine's byte order; an equal dtype that is another object may have metadata.

NumPy has two equal dtypes for each integer of 64 bits. An array has the one that NumPy also finds by name.
"""
_DTYPES: dict[tuple[str, object], Any] = {}
"""A backend's name and a dtype as the user writes it -> the framework's dtype; only dtypes that exist."""

SHAPED, FILL, DRAW, VALUES, COPY = range(5)
"""The arguments of the adapter's method, before dtype and device: a shape; a shape and a number; two numbers and a
shape; values. The last is `Backend.from_numpy`, which takes an array, and no dtype."""


def make(
    kind: int, call: str, shape: tuple[int, ...], dtype: object, device: object, first: Any = None, second: Any = None
) -> Tensor | None:
    """Return a new tensor, or None if the slow path must make it or raise the error.

    Args:
        kind: `SHAPED`, `FILL`, `DRAW`, `VALUES` or `COPY`.
        call: The adapter's method, such as ``"ones"``.
        shape: The shape that the user gave, whose lengths are checked here; empty if the kind has none.
        dtype: The dtype that the user gave, or None.
        device: The device that the user gave, or None.
        first: The number or the values, which the caller has checked; or the array, which is checked here.
        second: The second number.
    """
    if observing.ACTIVE is not None or (dtype is None and default_dtypes.CHOSEN and kind != COPY):
        return None
    if dtype is not None and call in fitting.CALLS:  # the slow path checks that the numbers fit the dtype
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
    if backend is None or len(shape) > _FEW or (kind == COPY and not _is_plain(first)):
        return None
    for size in shape:
        if type(size) is not int or not 0 <= size <= _SHORT:
            return None
    fast = backend.fast_paths
    maker = fast.host_makers.get(call)
    try:
        if maker is not None and dtype is None:
            if kind == SHAPED:
                x = maker(shape)
            elif kind == VALUES:
                x = maker(first)
            else:
                x = maker(shape, first) if kind == FILL else maker(first, second, shape)
        elif kind == COPY:
            x = None if backend.compiling() else backend.from_numpy(first, CPU, True)
        else:
            method, native = getattr(backend, call), _native(backend, dtype)
            if kind == SHAPED:
                x = method(shape, native, CPU)
            elif kind == DRAW:
                x = method(first, second, shape, native, CPU)
            else:
                x = method(first, native, CPU) if kind == VALUES else method(shape, first, native, CPU)
        if fast.host_type is None:
            return x if backend.device_of(x) is CPU else None
        return x if type(x) is fast.host_type and (not fast.host_flag or getattr(x, fast.host_flag) is True) else None
    except Exception:  # the slow path fails in the same way, with a reason
        return None


def _native(backend: Backend, dtype: object) -> Any:
    """Return the framework's dtype for one in any form, and remember it; None for None."""
    if dtype is None:
        return None
    found = _DTYPES.get((backend.name, dtype))
    if found is None:
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
    """Return True for a number that every framework can store in its default dtype: a float, or an int of 32 bits."""
    kind = type(value)
    return kind is float or (kind is int and -(2**31) < value < 2**31)


def _is_plain(array: np.ndarray) -> bool:
    """Return True for an array of numbers that any framework can read."""
    if type(array) is not np.ndarray:
        return False
    kind = array.dtype
    return _PLAIN_DTYPES.get(kind) is kind
