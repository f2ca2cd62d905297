"""Functions that make tensors on a device: the array API's creation functions, with ``device=``.

Without ``device=``, and outside `devshim.on`, a new tensor is on the CPU on every framework; the defaults of
TensorFlow, JAX and Paddle would use GPU 0. A ``*_like`` tensor is on the device of its argument. A dtype is the
framework's, NumPy's, or a name of the array API (``"float32"``); without one, the default of `set_default_dtype` or of
the framework applies. With ``like=x``, framework, dtype and device are taken from a tensor ``x``; an explicit dtype or
device takes precedence. `asarray` is in ``devshim.tensors.from_values``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devshim.tensors import arguments, on_host, value_hints
from devshim.tensors.on_host import FILL, SHAPED
from devshim.transfers import engine

if TYPE_CHECKING:
    from typing import NoReturn

    from devshim.contract.backend import Tensor
    from devshim.devices.parsing import DeviceLike
    from devshim.tensors.arguments import Shape

__all__ = ["arange", "empty", "empty_like", "eye", "full", "full_like", "linspace"]
__all__ += ["ones", "ones_like", "zeros", "zeros_like"]


def empty(
    shape: Shape, *_more: NoReturn, dtype: object = None, device: DeviceLike | None = None, like: Tensor | None = None
) -> Tensor:
    """Return a tensor of a shape with uninitialised values.

    Args:
        shape: An int or a tuple of ints.
        dtype: The dtype of the result; without it, the default float.
        device: The target; without it, the device of `on`, or the CPU.
        like: A tensor whose framework, dtype and device the result has; ``dtype`` and ``device`` take precedence.

    Raises:
        NotATensorError: ``like`` is not a tensor.
        DeviceNotFoundError: The framework does not have the device.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> x = ds.ones(2, dtype="float32")
        >>> ds.dtype_of(ds.empty((2, 3), like=x)), ds.dtype_of(ds.empty((2, 3), dtype="int8", like=x))
        ('float32', 'int8')
    """
    if _more:
        raise value_hints.too_many("empty", 1, (shape, *_more))
    if like is None:
        sizes = shape if type(shape) is tuple else arguments.shape(shape)
        if (x := on_host.make(SHAPED, "empty", sizes, dtype, device)) is not None:
            return x
    return engine.make(*arguments.plan("empty", (arguments.shape(shape),), dtype, device, like))


def zeros(
    shape: Shape, *_more: NoReturn, dtype: object = None, device: DeviceLike | None = None, like: Tensor | None = None
) -> Tensor:
    """Return a tensor of zeros; arguments as for `empty`.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.zeros((2, 2))
        array([[0., 0.],
               [0., 0.]])
    """
    if _more:
        raise value_hints.too_many("zeros", 1, (shape, *_more))
    if like is None:
        sizes = shape if type(shape) is tuple else arguments.shape(shape)
        if (x := on_host.make(SHAPED, "zeros", sizes, dtype, device)) is not None:
            return x
    return engine.make(*arguments.plan("zeros", (arguments.shape(shape),), dtype, device, like))


def ones(
    shape: Shape, *_more: NoReturn, dtype: object = None, device: DeviceLike | None = None, like: Tensor | None = None
) -> Tensor:
    """Return a tensor of ones; arguments as for `empty`.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.ones((2, 3), dtype="float32").shape
        (2, 3)
    """
    if _more:
        raise value_hints.too_many("ones", 1, (shape, *_more))
    if like is None:
        sizes = shape if type(shape) is tuple else arguments.shape(shape)
        if (x := on_host.make(SHAPED, "ones", sizes, dtype, device)) is not None:
            return x
    return engine.make(*arguments.plan("ones", (arguments.shape(shape),), dtype, device, like))


def full(
    shape: Shape,
    fill_value: complex,
    *_more: NoReturn,
    dtype: object = None,
    device: DeviceLike | None = None,
    like: Tensor | None = None,
) -> Tensor:
    """Return a tensor filled with one value; the other arguments are those of `empty`.

    Args:
        shape: An int or a tuple of ints.
        fill_value: The value; without ``dtype``, its Python type selects the default dtype.
        dtype: The dtype of the result.
        device: The target.
        like: As for `empty`.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.full((2, 2), 7.0)
        array([[7., 7.],
               [7., 7.]])
    """
    if like is None and not _more and on_host.is_small(fill_value):
        sizes = shape if type(shape) is tuple else arguments.shape(shape)
        if (x := on_host.make(FILL, "full", sizes, dtype, device, fill_value)) is not None:
            return x
    if _more:
        raise value_hints.too_many("full", 2, (shape, fill_value, *_more))
    if isinstance(fill_value, tuple) and not value_hints.is_shape(shape):
        raise value_hints.swapped_fill(shape, fill_value)
    return engine.make(*arguments.plan("full", (arguments.shape(shape), fill_number(fill_value)), dtype, device, like))


def fill_number(value: object) -> complex:
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
    like: Tensor | None = None,
) -> Tensor:
    """Return evenly spaced values in ``[start, stop)``, or in ``[0, start)`` if only one bound is given.

    Args:
        start: The first value.
        stop: The bound, which is excluded.
        step: The distance between values; not 0.
        dtype: Without it, an integer dtype if all three are ints, and the default float otherwise.
        device: The target.
        like: As for `empty`.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.arange(1, 10, 3)
        array([1, 4, 7])
    """
    if value_hints.is_shape(start):
        raise value_hints.one_by_one("arange", "start", start)
    low, high = (0, start) if stop is None else (start, stop)
    return engine.make(*arguments.plan("arange", arguments.steps(low, high, step), dtype, device, like))


def linspace(
    start: float,
    stop: float,
    /,
    num: int,
    *,
    dtype: object = None,
    device: DeviceLike | None = None,
    endpoint: bool = True,
    like: Tensor | None = None,
) -> Tensor:
    """Return ``num`` evenly spaced values from ``start`` to ``stop``.

    Args:
        start: The first value.
        stop: The last value; excluded if ``endpoint`` is False.
        num: The number of values, at least 0.
        dtype: The dtype of the result; without it, the default float.
        device: The target.
        endpoint: Whether ``stop`` is the last value.
        like: As for `empty`.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.linspace(0, 1, 5)
        array([0.  , 0.25, 0.5 , 0.75, 1.  ])
    """
    (count,) = arguments.shape(arguments.integer("num", num))
    args = (arguments.number("start", start), arguments.number("stop", stop), count)
    return engine.make(*arguments.plan("linspace", args, dtype, device, like), bool(endpoint))


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: object = None,
    device: DeviceLike | None = None,
    like: Tensor | None = None,
) -> Tensor:
    """Return ones on the k-th diagonal and zeros elsewhere.

    Args:
        n_rows: Rows of the result.
        n_cols: Columns of the result; without it, as many as rows.
        k: Which diagonal: 0 the main one, positive above, negative below.
        dtype: The dtype of the result; without it, the default float.
        device: The target.
        like: As for `empty`.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.eye(2, 3, k=1)
        array([[0., 1., 0.],
               [0., 0., 1.]])
    """
    if value_hints.is_shape(n_rows):
        raise value_hints.one_by_one("eye", "n_rows", n_rows)
    rows, columns = arguments.shape((n_rows, n_rows if n_cols is None else n_cols))
    return engine.make(*arguments.plan("eye", (rows, columns, arguments.integer("k", k)), dtype, device, like))


def empty_like(x: Tensor, /, *, dtype: object = None, device: DeviceLike | None = None) -> Tensor:
    """Return uninitialised values in the shape of ``x``; dtype, device and framework are ``x``'s unless given.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.empty_like(ds.ones((2, 3))).shape
        (2, 3)
    """
    return engine.make(*_like("empty", x, dtype, device))


def zeros_like(x: Tensor, /, *, dtype: object = None, device: DeviceLike | None = None) -> Tensor:
    """Return zeros in the shape of ``x``; dtype, device and framework are ``x``'s unless given.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.zeros_like(ds.ones((2, 3), dtype="float32")).dtype
        dtype('float32')
    """
    return engine.make(*_like("zeros", x, dtype, device))


def ones_like(x: Tensor, /, *, dtype: object = None, device: DeviceLike | None = None) -> Tensor:
    """Return ones in the shape of ``x``; dtype, device and framework are ``x``'s unless given.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.ones_like(ds.zeros((2, 2)))
        array([[1., 1.],
               [1., 1.]])
    """
    return engine.make(*_like("ones", x, dtype, device))


def full_like(x: Tensor, /, fill_value: complex, *, dtype: object = None, device: DeviceLike | None = None) -> Tensor:
    """Return one value in the shape of ``x``; dtype, device and framework are ``x``'s unless given.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.full_like(ds.ones((2, 2)), 7)
        array([[7., 7.],
               [7., 7.]])
    """
    return engine.make(*_like("full", x, dtype, device, fill_number(fill_value)))


def _like(call: str, x: Tensor, dtype: object, device: DeviceLike | None, *value: object) -> tuple[Any, ...]:
    """Return the arguments of `engine.make` for a tensor in the shape of another."""
    backend, x = arguments.tensor_of(x, f"{call}_like")
    wanted, target = arguments.dtype_and_device_like(backend, x, dtype, device, f"{call}_like")
    return arguments.plan_for(backend, call, target, (backend.shape(x), *value), wanted)


for _name in ("empty", "full", "ones", "zeros"):
    value_hints.hide_positional(globals()[_name])
