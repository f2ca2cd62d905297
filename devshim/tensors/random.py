"""The functions of `devshim.random`; that module contains only public names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devshim.tensors import arguments, draws, generators, on_host, value_hints
from devshim.tensors.draws import Result
from devshim.transfers import engine

if TYPE_CHECKING:
    from typing import NoReturn

    from devshim.contract.backend import Tensor
    from devshim.devices.parsing import DeviceLike
    from devshim.tensors.arguments import Shape

__all__ = ["bernoulli", "normal", "permutation", "randint", "uniform"]

_FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
"""The dtypes of random floats for which a draw takes the fast path."""
_REALS = frozenset({float, int})
"""The types of the numbers that need no conversion."""
_LARGEST, _SMALL = 3e4, 2**31
"""Every floating dtype can represent twice the first number. Integers below the second fit the default integer dtype of
every framework."""


def uniform(
    low: float = 0,
    high: float = 1,
    size: Shape | None = None,
    *_more: NoReturn,
    dtype: object = None,
    device: DeviceLike | None = None,
    like: Tensor | None = None,
) -> Tensor:
    """Return values drawn uniformly from ``[low, high)``.

    Args:
        low: The smallest value.
        high: The bound, which is excluded; not below ``low``.
        size: The shape, an int or a tuple of ints; None for a single 0-d value.
        dtype: A floating dtype; without it, the default float.
        device: The device that draws; without it, the device of `on`, or the CPU.
        like: A tensor whose framework, dtype and device the result has; ``dtype`` and ``device`` take precedence.

    Raises:
        ArgumentError: A bound or the dtype makes no sense.
        DeviceNotFoundError: The framework does not have the device.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.random.uniform(-1, 1, size=(2, 3), dtype="float32").shape
        (2, 3)
    """
    if _more:
        raise value_hints.too_many("random.uniform", 3, (low, high, size, *_more))
    source = generators.SOURCE
    plain = like is source is None and (dtype is None or (type(dtype) is str and dtype in _FLOATS))
    if plain and type(low) in _REALS and type(high) in _REALS and -_LARGEST <= low <= high <= _LARGEST:
        shape = size if type(size) is tuple else arguments.optional_shape(size)
        x = on_host.make("uniform", (low, high, shape), shape, dtype, device)
        if x is not None:
            return x
    return engine.make(*draws.uniform(low, high, size, Result(dtype, device, like, source)))


def normal(
    loc: float = 0,
    scale: float = 1,
    size: Shape | None = None,
    *_more: NoReturn,
    dtype: object = None,
    device: DeviceLike | None = None,
    like: Tensor | None = None,
) -> Tensor:
    """Return values drawn from a normal distribution.

    Args:
        loc: The mean.
        scale: The standard deviation; not negative.
        size: The shape, an int or a tuple of ints; None for a single 0-d value.
        dtype: A floating dtype; without it, the default float.
        device: The device that draws; without it, the device of `on`, or the CPU.
        like: As for `uniform`.

    Raises:
        ArgumentError: The deviation or the dtype makes no sense.
        DeviceNotFoundError: The framework does not have the device.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.random.normal(0, 0.01, size=(784, 10)).shape
        (784, 10)
    """
    if _more:
        raise value_hints.too_many("random.normal", 3, (loc, scale, size, *_more))
    source = generators.SOURCE
    plain = like is source is None and (dtype is None or (type(dtype) is str and dtype in _FLOATS))
    if plain and type(loc) in _REALS and type(scale) in _REALS and -_LARGEST <= loc <= _LARGEST >= scale >= 0:
        shape = size if type(size) is tuple else arguments.optional_shape(size)
        x = on_host.make("normal", (loc, scale, shape), shape, dtype, device)
        if x is not None:
            return x
    return engine.make(*draws.normal(loc, scale, size, Result(dtype, device, like, source)))


def randint(
    low: int,
    high: int | None = None,
    size: Shape | None = None,
    *_more: NoReturn,
    dtype: object = None,
    device: DeviceLike | None = None,
    like: Tensor | None = None,
) -> Tensor:
    """Return integers drawn uniformly from ``[low, high)``, or from ``[0, low)`` if only one bound is given.

    Args:
        low: The smallest value.
        high: The bound, which is excluded; greater than ``low``, by at most 2**53, and below 2**63. A portable
            generator draws all 64-bit integers: its bound is at most 2**63, or 2**64 with ``dtype="uint64"``.
        size: The shape, an int or a tuple of ints; None for a single 0-d value.
        dtype: An integer dtype that can represent the values; without it, the default integer.
        device: The device that draws; without it, the device of `on`, or the CPU.
        like: As for `uniform`.

    Raises:
        ArgumentError: A bound makes no sense, or the dtype cannot represent the values.
        DeviceNotFoundError: The framework does not have the device.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> rolls = ds.random.randint(1, 7, size=100)
        >>> bool(rolls.min() >= 1 and rolls.max() <= 6)
        True
    """
    if _more:
        raise value_hints.too_many("random.randint", 3, (low, high, size, *_more))
    source = generators.SOURCE
    first, end = (0, low) if high is None else (low, high)
    if type(first) is type(end) is int and -_SMALL <= first < end <= _SMALL and like is dtype is source is None:
        shape = size if type(size) is tuple else arguments.optional_shape(size)
        x = on_host.make("randint", (first, end, shape), shape, None, device)
        if x is not None:
            return x
    return engine.make(*draws.randint(low, high, size, Result(dtype, device, like, source)))


def permutation(
    n: int, *, dtype: object = None, device: DeviceLike | None = None, like: Tensor | None = None
) -> Tensor:
    """Return the integers from 0 to ``n - 1`` in random order, as a tensor with one axis.

    Args:
        n: How many integers.
        dtype: An integer dtype that can represent them; without it, the default integer.
        device: The device that draws; without it, the device of `on`, or the CPU.
        like: As for `uniform`.

    Raises:
        ArgumentError: ``n`` is not a length, or the dtype cannot represent the values.
        DeviceNotFoundError: The framework does not have the device.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> sorted(ds.random.permutation(4).tolist())
        [0, 1, 2, 3]
    """
    source = generators.SOURCE
    if like is dtype is source is None and (x := on_host.make("permutation", (n,), (n,), None, device)) is not None:
        return x
    return engine.make(*draws.permutation(n, Result(dtype, device, like, source)))


def bernoulli(
    p: float = 0.5,
    size: Shape | None = None,
    *_more: NoReturn,
    dtype: object = None,
    device: DeviceLike | None = None,
    like: Tensor | None = None,
) -> Tensor:
    """Return values that are True, or 1, with a given probability.

    Args:
        p: The probability, from 0 to 1.
        size: The shape, an int or a tuple of ints; None for a single 0-d value.
        dtype: Any dtype; without it, bool.
        device: The device that draws; without it, the device of `on`, or the CPU.
        like: As for `uniform`.

    Raises:
        ArgumentError: ``p`` is not a probability.
        DeviceNotFoundError: The framework does not have the device.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.random.bernoulli(1.0, size=3).tolist()
        [True, True, True]
    """
    if _more:
        raise value_hints.too_many("random.bernoulli", 2, (p, size, *_more))
    source = generators.SOURCE
    if like is dtype is source is None and type(p) is float and 0 <= p <= 1:
        shape = size if type(size) is tuple else arguments.optional_shape(size)
        if (x := on_host.make("bernoulli", (p, shape), shape, None, device)) is not None:
            return x
    return engine.make(*draws.bernoulli(p, size, Result(dtype, device, like, source)))


for _public in (bernoulli, normal, permutation, randint, uniform):
    value_hints.hide_positional(_public)
