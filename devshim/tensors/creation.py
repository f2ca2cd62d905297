"""Functions that make tensors on a device: the array API's creation functions, with ``device=``.

Without ``device=``, and outside `devshim.on`, a new tensor is on the CPU on every framework; the defaults of
TensorFlow, JAX and Paddle would use GPU 0.  A ``*_like`` tensor is on the device of its argument.  A dtype is the
framework's, NumPy's, or a name of the array API (``"float32"``); without one, the framework's default applies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from devshim.devices import parsing
from devshim.devices.device import CPU
from devshim.devices.dtypes import DTYPES
from devshim.errors import ConversionError, DevshimError, messages
from devshim.registry import current, registry
from devshim.tensors import arguments, placing, stacking, value_hints
from devshim.transfers import decisions, engine, observing

if TYPE_CHECKING:
    from typing import NoReturn

    from devshim.contract.backend import Backend, Tensor
    from devshim.devices.device import Device
    from devshim.devices.parsing import DeviceLike
    from devshim.tensors.arguments import Shape

__all__ = ["arange", "asarray", "empty", "empty_like", "eye", "full", "full_like", "linspace"]
__all__ += ["ones", "ones_like", "zeros", "zeros_like"]


def asarray(obj: object, *, dtype: object = None, device: DeviceLike | None = None, copy: bool | None = None) -> Tensor:
    """Return a tensor with the values of an object.

    Args:
        obj: A Python number, nested sequences of numbers, a NumPy array, anything NumPy can read, or a tensor.  The
            result of a tensor is a tensor of its framework, on the same device unless ``device`` is given. Nested
            lists of tensors are stacked on the device that all share, or on ``device``; gradients flow to each. A
            number among them takes the dtype of the first that can hold it; ``stack`` of the framework promotes dtypes.
        dtype: The dtype of the result; without it, that of ``obj``; for Python numbers, the framework's default.
        device: The target; see the module's docstring.
        copy: As for `place` if ``obj`` is a tensor, as for `from_numpy` if it is an array; Python
            numbers are always copied.

    Raises:
        ConversionError: ``obj`` contains no numbers, or the framework lacks the dtype, or cannot stack the tensors.
        DeviceMismatchError: Tensors in a list are on different devices, and ``device`` is not given.
        CopyNeededError: ``copy=False``, and a copy is needed.
        DeviceNotFoundError: The framework does not have the device.
    """
    active = observing.ACTIVE
    backend = registry.backend_for(obj)
    if backend is not None and not _is_foreign(backend, obj):
        target = backend.device_of(obj) if device is None else engine.require(backend, parsing.device(device))
        x, copy = _cast(backend, obj, arguments.dtype(backend, dtype), copy)
        if active is not None and active.explain is not None:
            active.explain(backend, "copy" if copy else "place", target)
        if decisions.stays(backend, x, target, copy):
            return x
        return engine.move_observed(active, backend, x, target, False)
    if type(obj) is list or type(obj) is tuple:
        found = stacking.tensors_in(obj)
        if found:
            return stacking.stacked(obj, found, dtype, device, copy)
    plan = _reading(obj, dtype, device, copy)
    try:
        x = engine.make(*plan) if active is None or active.record is None else _made(active.record, *plan)
    except DevshimError:
        raise
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:  # PyTorch raises this for a None in the list
        raise _unreadable(plan[0], error) from error
    if plan[0].dtype_name(x) not in DTYPES:  # TensorFlow also makes tensors of text
        raise _unreadable(plan[0], f"they make a tensor of dtype {plan[0].dtype_name(x)}")
    return x if dtype is None or type(obj) in _NUMBERS else _cast(plan[0], x, arguments.dtype(plan[0], dtype), copy)[0]


_NUMBERS = frozenset({bool, int, float, complex, list, tuple})
"""The types that an adapter's `asarray` reads: Python numbers, and sequences of them."""


def _is_foreign(backend: Backend, obj: object) -> bool:
    """Return True if an object is a NumPy array that another current framework reads as plain values."""
    return isinstance(obj, np.ndarray) and backend.device_of(obj) is CPU and backend is not current.current()


def _reading(obj: Any, dtype: object, device: DeviceLike | None, copy: bool | None) -> tuple[Any, ...]:
    """Return the arguments of `engine.make` that give the current framework an object's values."""
    if type(obj) in _NUMBERS:
        if copy is False:
            raise messages.cannot_share("Python numbers", "a tensor has memory of its own")
        return arguments.plan("asarray", (obj,), dtype, device)
    backend = current.current()
    return placing.from_array(backend, _host_array(backend, obj, copy), arguments.target(backend, device), copy)


def _made(record: Any, backend: Backend, target: Device, nbytes: int | None, *how: Any) -> Tensor:
    """Make a tensor while copies are recorded: Python numbers that go to a GPU count as a copy of the result's size."""
    recording = None if target is CPU or nbytes is not None else record(backend, CPU, target, 0, 1)
    if recording is None:
        return engine.make(backend, target, nbytes, *how)
    with recording:
        x = engine.make(backend, target, nbytes, *how)
        recording.carried(backend.nbytes(x))
    return x


def _host_array(backend: Backend, obj: object, copy: bool | None) -> np.ndarray:
    try:
        array = obj if isinstance(obj, np.ndarray) else np.asarray(obj)
    except (TypeError, ValueError) as error:  # an object's own __array__ may refuse
        raise _unreadable(backend, error) from error
    if array.dtype.kind in "OUS" and not isinstance(obj, (np.ndarray, np.generic)):
        raise _unreadable(backend, value_hints.no_numbers(obj))
    return arguments.numpy_array(array, copy)


def _unreadable(backend: Backend, error: Exception | str) -> ConversionError:
    return ConversionError(
        f"{backend.title} cannot read these values: {str(error).partition(chr(10))[0][:200].rstrip('. ')}",
        "pass a number, or nested sequences of numbers whose rows are equally long",
    )


def _cast(backend: Backend, x: Tensor, wanted: Any, copy: bool | None) -> tuple[Tensor, bool | None]:
    """Return the tensor in the wanted dtype, and the remaining ``copy`` flag: a cast is already a copy."""
    if wanted is None:
        return x, copy
    cast = backend.cast(x, wanted)
    if backend.dtype_name(cast) == backend.dtype_name(x):
        return x, copy
    if copy is False:
        raise messages.cannot_share("the tensor", "another dtype needs memory of its own")
    return cast, None


def empty(shape: Shape, *_more: NoReturn, dtype: object = None, device: DeviceLike | None = None) -> Tensor:
    """Return a tensor of a shape with uninitialised values.

    Args:
        shape: An int or a tuple of ints.
        dtype: The dtype of the result; without it, the framework's default float.
        device: The target; without it, the device of `on`, or the CPU.
    """
    if _more:
        raise value_hints.too_many("empty", 1, (shape, *_more))
    return engine.make(*arguments.plan("empty", (arguments.shape(shape),), dtype, device))


def zeros(shape: Shape, *_more: NoReturn, dtype: object = None, device: DeviceLike | None = None) -> Tensor:
    """Return a tensor of zeros; arguments as for `empty`."""
    if _more:
        raise value_hints.too_many("zeros", 1, (shape, *_more))
    return engine.make(*arguments.plan("zeros", (arguments.shape(shape),), dtype, device))


def ones(shape: Shape, *_more: NoReturn, dtype: object = None, device: DeviceLike | None = None) -> Tensor:
    """Return a tensor of ones; arguments as for `empty`."""
    if _more:
        raise value_hints.too_many("ones", 1, (shape, *_more))
    return engine.make(*arguments.plan("ones", (arguments.shape(shape),), dtype, device))


def full(
    shape: Shape, fill_value: complex, *_more: NoReturn, dtype: object = None, device: DeviceLike | None = None
) -> Tensor:
    """Return a tensor filled with one value; the other arguments are those of `empty`.

    Args:
        shape: An int or a tuple of ints.
        fill_value: The value; without ``dtype``, its Python type selects the framework's default dtype.
        dtype: The dtype of the result.
        device: The target.
    """
    if _more:
        raise value_hints.too_many("full", 2, (shape, fill_value, *_more))
    if isinstance(fill_value, tuple) and not value_hints.is_shape(shape):
        raise value_hints.swapped_fill(shape, fill_value)
    args = (arguments.shape(shape), fill(fill_value))
    return engine.make(*arguments.plan("full", args, dtype, device))


def fill(value: object) -> complex:
    """Return a fill value as a Python number; integers must fit in 64 bits, the most any framework has."""
    number: complex = arguments.number("fill_value", value)
    if isinstance(number, int) and not -(2**63) <= number < 2**64:
        raise value_hints.huge_fill(value)
    return number


def arange(
    start: float,
    /,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: object = None,
    device: DeviceLike | None = None,
) -> Tensor:
    """Return evenly spaced values in ``[start, stop)``, or in ``[0, start)`` if only one bound is given.

    Args:
        start: The first value.
        stop: The bound, which is excluded.
        step: The distance between values; not 0.
        dtype: Without it, an integer dtype if all three are ints, and the framework's default float otherwise.
        device: The target.
    """
    if value_hints.is_shape(start):
        raise value_hints.one_by_one("arange", "start", start)
    low, high = (0, start) if stop is None else (start, stop)
    return engine.make(*arguments.plan("arange", arguments.steps(low, high, step), dtype, device))


def linspace(
    start: float,
    stop: float,
    /,
    num: int,
    *,
    dtype: object = None,
    device: DeviceLike | None = None,
    endpoint: bool = True,
) -> Tensor:
    """Return ``num`` evenly spaced values from ``start`` to ``stop``.

    Args:
        start: The first value.
        stop: The last value; excluded if ``endpoint`` is False.
        num: The number of values, at least 0.
        dtype: The dtype of the result; without it, the framework's default float.
        device: The target.
        endpoint: Whether ``stop`` is the last value.
    """
    (count,) = arguments.shape(arguments.integer("num", num))
    args = (arguments.number("start", start), arguments.number("stop", stop), count)
    return engine.make(*arguments.plan("linspace", args, dtype, device), bool(endpoint))


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: object = None,
    device: DeviceLike | None = None,
) -> Tensor:
    """Return ones on the k-th diagonal and zeros elsewhere.

    Args:
        n_rows: Rows of the result.
        n_cols: Columns of the result; without it, as many as rows.
        k: Which diagonal: 0 the main one, positive above, negative below.
        dtype: The dtype of the result; without it, the framework's default float.
        device: The target.
    """
    if value_hints.is_shape(n_rows):
        raise value_hints.one_by_one("eye", "n_rows", n_rows)
    rows, columns = arguments.shape((n_rows, n_rows if n_cols is None else n_cols))
    return engine.make(*arguments.plan("eye", (rows, columns, arguments.integer("k", k)), dtype, device))


def empty_like(x: Tensor, /, *, dtype: object = None, device: DeviceLike | None = None) -> Tensor:
    """Return uninitialised values in the shape of ``x``; dtype, device and framework are ``x``'s unless given."""
    return engine.make(*_like("empty", x, dtype, device))


def zeros_like(x: Tensor, /, *, dtype: object = None, device: DeviceLike | None = None) -> Tensor:
    """Return zeros in the shape of ``x``; dtype, device and framework are ``x``'s unless given."""
    return engine.make(*_like("zeros", x, dtype, device))


def ones_like(x: Tensor, /, *, dtype: object = None, device: DeviceLike | None = None) -> Tensor:
    """Return ones in the shape of ``x``; dtype, device and framework are ``x``'s unless given."""
    return engine.make(*_like("ones", x, dtype, device))


def full_like(x: Tensor, /, fill_value: complex, *, dtype: object = None, device: DeviceLike | None = None) -> Tensor:
    """Return one value in the shape of ``x``; dtype, device and framework are ``x``'s unless given."""
    return engine.make(*_like("full", x, dtype, device, fill(fill_value)))


def _like(call: str, x: Tensor, dtype: object, device: DeviceLike | None, *value: object) -> tuple[Any, ...]:
    """Return the arguments of `engine.make` for a tensor in the shape of another."""
    backend, x = arguments.tensor_of(x, f"{call}_like")
    target = backend.device_of(x) if device is None else decisions.reach(backend, parsing.device(device), (x,))
    plan = arguments.planned(backend, call, target, (backend.shape(x), *value), dtype)
    return plan if dtype is not None else (*plan[:-2], backend.dtype(backend.dtype_name(x)), target)


for _name in ("empty", "full", "ones", "zeros"):
    value_hints.given_by_name(globals()[_name])
for _name in __all__:
    globals()[_name].__module__ = "devshim"
