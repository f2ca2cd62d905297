"""Making tensors on a device: the array API's creation functions, with ``device=``.

Without ``device=``, and outside `devshim.on`, a new tensor is on the CPU on every framework; TensorFlow, JAX and
Paddle would take GPU 0 by themselves.  A ``*_like`` tensor is where its model is.  Dtypes are the framework's own,
NumPy's, or the array API's names (``"float32"``); without one the framework's default holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from devshim import _arguments, _context, _explain, _registry, _spec, _transfer
from devshim._refusals import bad_argument
from devshim.tensors import place, tensor_backend

if TYPE_CHECKING:
    from devshim._spec import DeviceLike
    from devshim.backend import Backend, Tensor
    from devshim.device import Device

__all__ = [
    *("arange", "asarray", "empty", "empty_like", "eye", "full", "full_like"),
    *("linspace", "ones", "ones_like", "zeros", "zeros_like"),
]


def _new(backend: Backend, call: str, device: Device, args: tuple[object, ...], dtype: Any, shown: object) -> Tensor:
    """Make a tensor through the adapter's method of the same name, on the one path."""
    if _explain.HOOK is not None:
        _explain.HOOK(backend, call, device, args, shown)
    return _transfer.make(backend, device, None, getattr(backend, call), *args, dtype, device)


def asarray(obj: object, *, dtype: object = None, device: DeviceLike | None = None, copy: bool | None = None) -> Tensor:
    """Return a tensor with the values of an object.

    Args:
        obj: A Python number, nested sequences of them, a NumPy array, anything NumPy can read, or a tensor.  A tensor
            is served by its own framework and stays where it is unless ``device`` says otherwise.
        dtype: The result's dtype; without it that of ``obj``, and for Python numbers the framework's default.
        device: Where to; see the module's first paragraph.
        copy: As for `place` where ``obj`` is a tensor, as for `from_numpy` where it is an array; Python
            numbers are always copied.

    Raises:
        ConversionError: ``obj`` holds no numbers, or the framework has no such dtype.
        CopyNeededError: ``copy=False``, and a copy is needed.
        DeviceNotFoundError: The framework does not have the device.
    """
    owner = _registry.serving(obj)
    if owner is not None and not isinstance(obj, np.ndarray):
        return _from_tensor(owner, obj, dtype, device, copy)
    backend = _context.current()
    if owner is backend:
        return _from_tensor(backend, obj, dtype, device, copy)
    target = _arguments.target(backend, device)
    if not isinstance(obj, (bool, int, float, complex, list, tuple)) or isinstance(obj, np.generic):
        return _from_array(backend, obj, dtype, target, copy)
    if copy is False:
        from devshim import _refusals

        raise _refusals.cannot_share("Python numbers", "a tensor has memory of its own")
    wanted = _arguments.dtype(backend, dtype)
    if _explain.HOOK is not None:
        _explain.HOOK(backend, "asarray", target, (obj,), dtype)
    return _transfer.make(backend, target, None, _readable, backend, obj, wanted, target)


def _readable(backend: Backend, values: object, dtype: Any, device: Device) -> Tensor:
    """The adapter's `asarray`, its complaint about unreadable values turned into ours."""
    from devshim.errors import ConversionError, DevshimError

    try:
        return backend.asarray(values, dtype, device)
    except DevshimError:
        raise
    except (ValueError, TypeError) as error:
        raise ConversionError(
            f"{backend.title} cannot read these values: {str(error)[:200]}",
            "pass a number, or nested sequences of numbers whose rows are equally long",
        ) from error


def _from_tensor(backend: Backend, x: Tensor, dtype: object, device: DeviceLike | None, copy: bool | None) -> Tensor:
    wanted = _arguments.dtype(backend, dtype)
    if wanted is not None and backend.dtype_name(backend.cast(x, wanted)) != backend.dtype_name(x):
        if copy is False:
            from devshim import _refusals

            raise _refusals.cannot_share("the tensor", "another dtype needs memory of its own")
        x = backend.cast(x, wanted)
        copy = None  # the cast was the copy
    return place(x, backend.device_of(x) if device is None else device, copy=copy)


def _from_array(backend: Backend, obj: object, dtype: object, target: Device, copy: bool | None) -> Tensor:
    array = _arguments.numpy_array(np.asarray(obj))
    if _explain.HOOK is not None:
        _explain.HOOK(backend, "from_numpy", target, (array,), dtype)
    wanted = _arguments.dtype(backend, dtype)
    x = _transfer.from_host(backend, array, target, copy is not False)
    return x if wanted is None else _from_tensor(backend, x, wanted, target, copy)


def empty(shape: object, *, dtype: object = None, device: DeviceLike | None = None) -> Tensor:
    """Return a tensor of a shape whose values are not set.

    Args:
        shape: An int or a tuple of ints.
        dtype: The framework's default float without it.
        device: Where to; the CPU, or `on`'s device, without it.
    """
    return _filled("empty", shape, dtype, device)


def zeros(shape: object, *, dtype: object = None, device: DeviceLike | None = None) -> Tensor:
    """Return a tensor of zeros; arguments as for `empty`."""
    return _filled("zeros", shape, dtype, device)


def ones(shape: object, *, dtype: object = None, device: DeviceLike | None = None) -> Tensor:
    """Return a tensor of ones; arguments as for `empty`."""
    return _filled("ones", shape, dtype, device)


def _filled(call: str, shape: object, dtype: object, device: DeviceLike | None) -> Tensor:
    backend = _context.current()
    target = _arguments.target(backend, device)
    return _new(backend, call, target, (_arguments.shape(shape),), _arguments.dtype(backend, dtype), dtype)


def full(shape: object, fill_value: complex, *, dtype: object = None, device: DeviceLike | None = None) -> Tensor:
    """Return a tensor of one value; other arguments as for `empty`.

    Args:
        shape: An int or a tuple of ints.
        fill_value: The value; without ``dtype`` its Python type chooses the framework's default dtype.
        dtype: The result's dtype.
        device: Where to.
    """
    backend = _context.current()
    args = (_arguments.shape(shape), _arguments.number("fill_value", fill_value))
    return _new(backend, "full", _arguments.target(backend, device), args, _arguments.dtype(backend, dtype), dtype)


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
    low, high = (0, start) if stop is None else (start, stop)
    args = tuple(_arguments.number(n, v) for n, v in (("start", low), ("stop", high), ("step", step)))
    if args[2] == 0:
        raise bad_argument("step", step, "a number other than 0")
    backend = _context.current()
    return _new(backend, "arange", _arguments.target(backend, device), args, _arguments.dtype(backend, dtype), dtype)


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
    backend = _context.current()
    target = _arguments.target(backend, device)
    (count,) = _arguments.shape(_arguments.integer("num", num))
    args = (_arguments.number("start", start), _arguments.number("stop", stop), count)
    if _explain.HOOK is not None:
        _explain.HOOK(backend, "linspace", target, args, dtype)
    wanted = _arguments.dtype(backend, dtype)
    return _transfer.make(backend, target, None, backend.linspace, *args, wanted, target, bool(endpoint))


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
    rows, columns = _arguments.shape((n_rows, n_rows if n_cols is None else n_cols))
    backend = _context.current()
    args = (rows, columns, _arguments.integer("k", k))
    return _new(backend, "eye", _arguments.target(backend, device), args, _arguments.dtype(backend, dtype), dtype)


def empty_like(x: Tensor, /, *, dtype: object = None, device: DeviceLike | None = None) -> Tensor:
    """Return a tensor of another's shape, values not set; dtype, device and framework are ``x``'s unless given."""
    return _like("empty", x, dtype, device)


def zeros_like(x: Tensor, /, *, dtype: object = None, device: DeviceLike | None = None) -> Tensor:
    """Return zeros in another tensor's shape; dtype, device and framework are ``x``'s unless given."""
    return _like("zeros", x, dtype, device)


def ones_like(x: Tensor, /, *, dtype: object = None, device: DeviceLike | None = None) -> Tensor:
    """Return ones in another tensor's shape; dtype, device and framework are ``x``'s unless given."""
    return _like("ones", x, dtype, device)


def full_like(x: Tensor, /, fill_value: complex, *, dtype: object = None, device: DeviceLike | None = None) -> Tensor:
    """Return one value in another tensor's shape; dtype, device and framework are ``x``'s unless given."""
    return _like("full", x, dtype, device, _arguments.number("fill_value", fill_value))


def _like(call: str, x: Tensor, dtype: object, device: DeviceLike | None, *value: object) -> Tensor:
    backend = tensor_backend(x, f"{call}_like")
    target = backend.device_of(x) if device is None else _transfer.require(backend, _spec.device(device))
    wanted = backend.dtype(backend.dtype_name(x)) if dtype is None else _arguments.dtype(backend, dtype)
    return _new(backend, call, target, (backend.shape(x), *value), wanted, dtype)


for _name in __all__:
    globals()[_name].__module__ = "devshim"
