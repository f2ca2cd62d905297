"""Functions that make tensors on a device: the array API's creation functions, with ``device=``.

Without ``device=``, and outside `devshim.on`, a new tensor is on the CPU on every framework; the defaults of
TensorFlow, JAX and Paddle would use GPU 0. A ``*_like`` tensor is on the device of its argument. A dtype is the
framework's, NumPy's, or a name of the array API (``"float32"``); without one, the default of `set_default_dtype` or of
the framework applies. An explicit dtype or device takes precedence over those of ``like=x``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from devshim.tensors import arguments, on_host, plans, value_hints
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
    """Return a tensor of a shape with uninitialized values.

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
    sizes = shape if type(shape) is tuple else arguments.shape(shape)
    if like is None and (x := on_host.make("empty", (sizes,), sizes, dtype, device)) is not None:
        return x
    return engine.make(*plans.plan("empty", (arguments.shape(sizes),), dtype, device, like))


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
    sizes = shape if type(shape) is tuple else arguments.shape(shape)
    if like is None and (x := on_host.make("zeros", (sizes,), sizes, dtype, device)) is not None:
        return x
    return engine.make(*plans.plan("zeros", (arguments.shape(sizes),), dtype, device, like))


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
    sizes = shape if type(shape) is tuple else arguments.shape(shape)
    if like is None and (x := on_host.make("ones", (sizes,), sizes, dtype, device)) is not None:
        return x
    return engine.make(*plans.plan("ones", (arguments.shape(sizes),), dtype, device, like))


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
        >>> ds.full(2, 7.0)
        array([7., 7.])
    """
    if like is None and not _more and on_host.is_small(fill_value):
        sizes = shape if type(shape) is tuple else arguments.shape(shape)
        if (x := on_host.make("full", (sizes, fill_value), sizes, dtype, device)) is not None:
            return x
    if _more:
        raise value_hints.too_many("full", 2, (shape, fill_value, *_more))
    if isinstance(fill_value, tuple) and not value_hints.is_shape(shape):
        raise value_hints.swapped_fill(shape, fill_value)
    args = (arguments.shape(shape), arguments.fill_number(fill_value))
    return engine.make(*plans.plan("full", args, dtype, device, like))


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
    low, high = (0, start) if stop is None else (start, stop)
    is_plain = like is None and on_host.is_short_range(low, high, step)
    if is_plain and (x := on_host.make("arange", (low, high, step), (), dtype, device)) is not None:
        return x
    if value_hints.is_shape(start):
        raise value_hints.one_by_one("arange", "start", start)
    return engine.make(*plans.plan("arange", arguments.steps(low, high, step), dtype, device, like))


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
        endpoint: True if ``stop`` is the last value.
        like: As for `empty`.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.linspace(0, 1, 5)
        array([0.  , 0.25, 0.5 , 0.75, 1.  ])
    """
    is_plain = like is None and type(endpoint) is bool and on_host.is_small(start) and on_host.is_small(stop)
    if is_plain and (x := on_host.make("linspace", (start, stop, num), (num,), dtype, device, endpoint)) is not None:
        return x
    (count,) = arguments.shape(arguments.integer("num", num))
    args = (arguments.number("start", start), arguments.number("stop", stop), count)
    return engine.make(*plans.plan("linspace", args, dtype, device, like, bool(endpoint)))


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
    sizes = (n_rows, n_rows if n_cols is None else n_cols)
    if like is None and type(k) is int and (x := on_host.make("eye", (*sizes, k), sizes, dtype, device)) is not None:
        return x
    if value_hints.is_shape(n_rows):
        raise value_hints.one_by_one("eye", "n_rows", n_rows)
    args = (*arguments.shape(sizes), arguments.integer("k", k))
    return engine.make(*plans.plan("eye", args, dtype, device, like))


def empty_like(x: Tensor, /, *, dtype: object = None, device: DeviceLike | None = None) -> Tensor:
    """Return uninitialized values in the shape of ``x``; dtype, device and framework are ``x``'s unless given.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.empty_like(ds.ones((2, 3))).shape
        (2, 3)
    """
    made = on_host.make_like("empty", x) if dtype is device is None else None
    return engine.make(*plans.plan_like("empty", x, dtype, device)) if made is None else made


def zeros_like(x: Tensor, /, *, dtype: object = None, device: DeviceLike | None = None) -> Tensor:
    """Return zeros in the shape of ``x``; dtype, device and framework are ``x``'s unless given.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.zeros_like(ds.ones((2, 3), dtype="float32")).dtype
        dtype('float32')
    """
    made = on_host.make_like("zeros", x) if dtype is device is None else None
    return engine.make(*plans.plan_like("zeros", x, dtype, device)) if made is None else made


def ones_like(x: Tensor, /, *, dtype: object = None, device: DeviceLike | None = None) -> Tensor:
    """Return ones in the shape of ``x``; dtype, device and framework are ``x``'s unless given.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.ones_like(ds.zeros(2))
        array([1., 1.])
    """
    made = on_host.make_like("ones", x) if dtype is device is None else None
    return engine.make(*plans.plan_like("ones", x, dtype, device)) if made is None else made


def full_like(x: Tensor, /, fill_value: complex, *, dtype: object = None, device: DeviceLike | None = None) -> Tensor:
    """Return one value in the shape of ``x``; dtype, device and framework are ``x``'s unless given.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.full_like(ds.ones(2), 7)
        array([7., 7.])
    """
    is_plain = dtype is device is None and on_host.is_small(fill_value)
    if is_plain and (made := on_host.make_like("full", x, fill_value)) is not None:
        return made
    return engine.make(*plans.plan_like("full", x, dtype, device, arguments.fill_number(fill_value)))


for _name in ("empty", "full", "ones", "zeros"):
    value_hints.hide_positional(globals()[_name])
