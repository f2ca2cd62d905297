"""The functions of `devshim.random`; that module contains only public names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devshim.tensors import draws, generators, value_hints
from devshim.tensors.draws import Result
from devshim.transfers import engine

if TYPE_CHECKING:
    from typing import NoReturn

    from devshim.contract.backend import Tensor
    from devshim.devices.parsing import DeviceLike
    from devshim.tensors.arguments import Shape

__all__ = ["bernoulli", "normal", "permutation", "randint", "uniform"]


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
    return engine.make(*draws.uniform(low, high, size, Result(dtype, device, like, generators.source())))


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
    return engine.make(*draws.normal(loc, scale, size, Result(dtype, device, like, generators.source())))


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
        high: The bound, which is excluded; greater than ``low``, by at most 2**53.
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
    return engine.make(*draws.randint(low, high, size, Result(dtype, device, like, generators.source())))


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
    return engine.make(*draws.permutation(n, Result(dtype, device, like, generators.source())))


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
    return engine.make(*draws.bernoulli(p, size, Result(dtype, device, like, generators.source())))


for _public in (bernoulli, normal, permutation, randint, uniform):
    value_hints.given_by_name(_public)
