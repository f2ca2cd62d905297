"""The functions of `devshim.random`, which holds nothing but them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devshim import _arguments, _context, _explain, _misuse_values, _outside, _refusals, _starting, _transfer
from devshim._lazy import keep_source
from devshim._refusals import bad_argument
from devshim.device import CPU

if TYPE_CHECKING:
    from typing import NoReturn

    from devshim._arguments import Shape
    from devshim._spec import DeviceLike
    from devshim.backend import Tensor

__all__ = ["normal", "seed", "uniform"]


def uniform(
    low: float = 0,
    high: float = 1,
    size: Shape | None = None,
    *_more: NoReturn,
    dtype: object = None,
    device: DeviceLike | None = None,
) -> Tensor:
    """Return values drawn evenly from ``[low, high)``.

    Args:
        low: The smallest value.
        high: The bound that is not reached; not below ``low``.
        size: The shape, an int or a tuple of ints; None for a single 0-d value.
        dtype: A floating dtype; the framework's default float without it.
        device: Where to draw; the CPU, or `on`'s device, without it.
    """
    if _more:
        raise _misuse_values.too_many("random.uniform", 3, (low, high, size, *_more))
    if _misuse_values.is_shape(low):
        raise _misuse_values.no_bound("uniform", "low", low)
    bounds = _arguments.finite("low", low), _arguments.finite("high", high)
    if not bounds[0] <= bounds[1]:
        raise bad_argument("high", high, f"at least low ({low})", f"exchange them: ds.random.uniform({high}, {low})")
    return _transfer.make(*_draw("uniform", bounds, size, dtype, device))


def normal(
    loc: float = 0,
    scale: float = 1,
    size: Shape | None = None,
    *_more: NoReturn,
    dtype: object = None,
    device: DeviceLike | None = None,
) -> Tensor:
    """Return values drawn from a normal distribution.

    Args:
        loc: The mean.
        scale: The standard deviation; not negative.
        size: The shape, an int or a tuple of ints; None for a single 0-d value.
        dtype: A floating dtype; the framework's default float without it.
        device: Where to draw; the CPU, or `on`'s device, without it.
    """
    if _more:
        raise _misuse_values.too_many("random.normal", 3, (loc, scale, size, *_more))
    if _misuse_values.is_shape(loc):
        raise _misuse_values.no_bound("normal", "loc", loc)
    parameters = _arguments.real("loc", loc), _arguments.real("scale", scale)
    if not parameters[1] >= 0:
        raise bad_argument(
            "scale", scale, "a number that is not negative", "a standard deviation is 0 or more: write scale=1.0"
        )
    return _transfer.make(*_draw("normal", parameters, size, dtype, device))


def _draw(
    call: str, parameters: tuple[float, float], size: Shape | None, dtype: object, device: DeviceLike | None
) -> tuple[Any, ...]:
    """The arguments of `_transfer.make` for a draw."""
    name = getattr(dtype, "name", dtype)
    if isinstance(name, str) and not name.startswith(("float", "bfloat")):
        raise _refusals.no_float(dtype)
    shape = () if size is None else _arguments.shape(size)
    return _arguments.plan(call, (*parameters, shape), dtype, device)


def seed(n: int) -> None:
    """Restart the current framework's generators on every device.

    Args:
        n: The seed, from 0 to 2**32 - 1.

    The framework's own draws restart too, not only devshim's.
    """
    _outside.refuse("random.seed", "seed outside: here it would be done once, while the function is compiled")
    value = _arguments.integer("n", n)
    if not 0 <= value < 2**32:
        raise bad_argument("n", n, "between 0 and 2**32 - 1", f"ds.random.seed({value % 2**32})")
    backend = _context.current()
    hook = _explain.HOOK
    if hook is not None:
        hook(backend, "seed", None, (value,))
    _starting.ask(backend, CPU, lambda _: backend.seed(value))


_misuse_values.given_by_name(normal)
_misuse_values.given_by_name(uniform)
for _public in (normal, seed, uniform):
    keep_source(_public).__module__ = "devshim.random"
