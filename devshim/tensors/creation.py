"""Making tensors on a device: the array API's creation functions, with ``device=``.

Without ``device=``, and outside `devshim.on`, a new tensor is on the CPU on every framework; TensorFlow, JAX and
Paddle would take GPU 0 by themselves.  A ``*_like`` tensor is where its model is.  Dtypes are the framework's own,
NumPy's, or the array API's names (``"float32"``); without one the framework's default holds.
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
from devshim.transfers import decisions, engine, explain

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
        obj: A Python number, nested sequences of them, a NumPy array, anything NumPy can read, or a tensor.  A tensor
            is served by its own framework and stays where it is unless ``device`` says otherwise. Nested lists of
            tensors are stacked on the device that all share, or moved to ``device``; gradients flow to each. A number
            among them takes the dtype of the first that can hold it; dtypes are promoted as the framework stacks.
        dtype: The result's dtype; without it that of ``obj``, and for Python numbers the framework's default.
        device: Where to; see the module's first paragraph.
        copy: As for `place` where ``obj`` is a tensor, as for `from_numpy` where it is an array; Python
            numbers are always copied.

    Raises:
        ConversionError: ``obj`` holds no numbers, the framework has no such dtype, or it cannot stack a list's tensors.
        DeviceMismatchError: Tensors in a list are on different devices, and ``device`` is not given.
        CopyNeededError: ``copy=False``, and a copy is needed.
        DeviceNotFoundError: The framework does not have the device.
    """
    backend = registry.serving(obj)
    if backend is not None and not _is_foreign(backend, obj):
        target = backend.device_of(obj) if device is None else engine.require(backend, parsing.device(device))
        x, copy = _cast(backend, obj, arguments.dtype(backend, dtype), copy)
        if (hook := explain.HOOK) is not None:
            hook(backend, "copy" if copy else "place", target)
        return x if decisions.stays(backend, x, target, copy) else engine.move(backend, x, target)
    if type(obj) is list or type(obj) is tuple:
        found = stacking.tensors_in(obj)
        if found:
            return stacking.stacked(obj, found, dtype, device, copy)
    plan = _reading(obj, dtype, device, copy)
    try:
        x = engine.make(*plan) if (ledger := engine.LEDGER) is None else _made(ledger, *plan)
    except DevshimError:
        raise
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:  # PyTorch's word for a None among them
        raise _unreadable(plan[0], error) from error
    if plan[0].dtype_name(x) not in DTYPES:  # TensorFlow makes a tensor of text, too
        raise _unreadable(plan[0], f"they make a tensor of dtype {plan[0].dtype_name(x)}")
    return x if dtype is None or type(obj) in _NUMBERS else _cast(plan[0], x, arguments.dtype(plan[0], dtype), copy)[0]


_NUMBERS = frozenset({bool, int, float, complex, list, tuple})
"""What an adapter's `asarray` reads: Python numbers, and sequences of them."""


def _is_foreign(backend: Backend, obj: object) -> bool:
    """Whether an object is a host array to be read by another framework: NumPy's is the common form of values."""
    return isinstance(obj, np.ndarray) and backend.device_of(obj) is CPU and backend is not current.current()


def _reading(obj: Any, dtype: object, device: DeviceLike | None, copy: bool | None) -> tuple[Any, ...]:
    """The arguments of `engine.make` that give the current framework an object's values."""
    if type(obj) in _NUMBERS:
        if copy is False:
            raise messages.cannot_share("Python numbers", "a tensor has memory of its own")
        return arguments.plan("asarray", (obj,), dtype, device)
    backend = current.current()
    return placing.from_array(backend, _host_array(backend, obj, copy), arguments.target(backend, device), copy)


def _made(ledger: Any, backend: Backend, target: Device, nbytes: int | None, *how: Any) -> Tensor:
    """Make a tensor while copies are watched: Python numbers that go to a card are a copy, of the result's size."""
    told = None if target is CPU or nbytes is not None else ledger(backend, CPU, target, 0, 1)
    if told is None:
        return engine.make(backend, target, nbytes, *how)
    with told:
        x = engine.make(backend, target, nbytes, *how)
        told.carried(backend.nbytes(x))
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
    """The tensor in the dtype wanted, and the ``copy`` that is left to obey: a cast was a copy."""
    if wanted is None:
        return x, copy
    cast = backend.cast(x, wanted)
    if backend.dtype_name(cast) == backend.dtype_name(x):
        return x, copy
    if copy is False:
        raise messages.cannot_share("the tensor", "another dtype needs memory of its own")
    return cast, None


def empty(shape: Shape, *_more: NoReturn, dtype: object = None, device: DeviceLike | None = None) -> Tensor:
    """Return a tensor of a shape whose values are not set.

    Args:
        shape: An int or a tuple of ints.
        dtype: The framework's default float without it.
        device: Where to; the CPU, or `on`'s device, without it.
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
    """Return a tensor of one value; other arguments as for `empty`.

    Args:
        shape: An int or a tuple of ints.
        fill_value: The value; without ``dtype`` its Python type chooses the framework's default dtype.
        dtype: The result's dtype.
        device: Where to.
    """
    if _more:
        raise value_hints.too_many("full", 2, (shape, fill_value, *_more))
    if isinstance(fill_value, tuple) and not value_hints.is_shape(shape):
        raise value_hints.swapped_fill(shape, fill_value)
    args = (arguments.shape(shape), _fill(fill_value))
    return engine.make(*arguments.plan("full", args, dtype, device))


def _fill(value: object) -> complex:
    """A fill value as a Python number; integers in 64 bits, the most any framework has."""
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
    """Return evenly spaced values in ``[start, stop)``, or in ``[0, start)`` where only one bound is given.

    Args:
        start: The first value.
        stop: The bound that is not reached.
        step: The distance between values; not 0.
        dtype: Without it an integer dtype where all three are ints, else the framework's default float.
        device: Where to.
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
        stop: The last value; left out where ``endpoint`` is False.
        num: How many, at least 0.
        dtype: The framework's default float without it.
        device: Where to.
        endpoint: Whether ``stop`` itself is the last value.
    """
    backend = current.current()
    target = arguments.target(backend, device)
    (count,) = arguments.shape(arguments.integer("num", num))
    args = (arguments.number("start", start), arguments.number("stop", stop), count)
    hook = explain.HOOK
    if hook is not None:
        hook(backend, "linspace", target, args, dtype)
    wanted = arguments.dtype(backend, dtype)
    return engine.make(backend, target, None, backend.linspace, *args, wanted, target, bool(endpoint))


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
        n_cols: Columns; as many as rows without it.
        k: Which diagonal: 0 the main one, positive above, negative below.
        dtype: The framework's default float without it.
        device: Where to.
    """
    if value_hints.is_shape(n_rows):
        raise value_hints.one_by_one("eye", "n_rows", n_rows)
    rows, columns = arguments.shape((n_rows, n_rows if n_cols is None else n_cols))
    return engine.make(*arguments.plan("eye", (rows, columns, arguments.integer("k", k)), dtype, device))


def empty_like(x: Tensor, /, *, dtype: object = None, device: DeviceLike | None = None) -> Tensor:
    """Return a tensor of another's shape, values not set; dtype, device and framework are ``x``'s unless given."""
    return engine.make(*_like("empty", x, dtype, device))


def zeros_like(x: Tensor, /, *, dtype: object = None, device: DeviceLike | None = None) -> Tensor:
    """Return zeros in another tensor's shape; dtype, device and framework are ``x``'s unless given."""
    return engine.make(*_like("zeros", x, dtype, device))


def ones_like(x: Tensor, /, *, dtype: object = None, device: DeviceLike | None = None) -> Tensor:
    """Return ones in another tensor's shape; dtype, device and framework are ``x``'s unless given."""
    return engine.make(*_like("ones", x, dtype, device))


def full_like(x: Tensor, /, fill_value: complex, *, dtype: object = None, device: DeviceLike | None = None) -> Tensor:
    """Return one value in another tensor's shape; dtype, device and framework are ``x``'s unless given."""
    return engine.make(*_like("full", x, dtype, device, _fill(fill_value)))


def _like(call: str, x: Tensor, dtype: object, device: DeviceLike | None, *value: object) -> tuple[Any, ...]:
    """The arguments of `engine.make` for a tensor in another's shape."""
    backend, x = arguments.tensor_of(x, f"{call}_like")
    target = backend.device_of(x) if device is None else decisions.reach(backend, parsing.device(device), (x,))
    plan = arguments.planned(backend, call, target, (backend.shape(x), *value), dtype)
    return plan if dtype is not None else (*plan[:-2], backend.dtype(backend.dtype_name(x)), target)


for _name in ("empty", "full", "ones", "zeros"):
    value_hints.given_by_name(globals()[_name])
for _name in __all__:
    globals()[_name].__module__ = "devshim"
