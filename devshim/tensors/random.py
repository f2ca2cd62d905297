"""The functions of `devshim.random`; that module contains only these names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devshim._lazy import keep_source
from devshim.devices.device import CPU
from devshim.errors import messages
from devshim.errors.messages import bad_argument
from devshim.registry import current, tracing, unstarted
from devshim.tensors import arguments, value_hints
from devshim.transfers import engine, explain

if TYPE_CHECKING:
    from typing import NoReturn

    from devshim.contract.backend import Tensor
    from devshim.devices.parsing import DeviceLike
    from devshim.tensors.arguments import Shape

__all__ = ["normal", "seed", "uniform"]


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
    """
    if _more:
        raise value_hints.too_many("random.uniform", 3, (low, high, size, *_more))
    if value_hints.is_shape(low):
        raise value_hints.no_bound("uniform", "low", low)
    bounds = arguments.finite("low", low), arguments.finite("high", high)
    if not bounds[0] <= bounds[1]:
        raise bad_argument("high", high, f"at least low ({low})", f"exchange them: ds.random.uniform({high}, {low})")
    return engine.make(*_draw("uniform", bounds, size, dtype, device, like))


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
        like: A tensor whose framework, dtype and device the result has; ``dtype`` and ``device`` take precedence.
    """
    if _more:
        raise value_hints.too_many("random.normal", 3, (loc, scale, size, *_more))
    if value_hints.is_shape(loc):
        raise value_hints.no_bound("normal", "loc", loc)
    parameters = arguments.real("loc", loc), arguments.real("scale", scale)
    if not parameters[1] >= 0:
        raise bad_argument(
            "scale", scale, "a number that is not negative", "a standard deviation is 0 or more: write scale=1.0"
        )
    return engine.make(*_draw("normal", parameters, size, dtype, device, like))


def _draw(
    call: str,
    parameters: tuple[float, float],
    size: Shape | None,
    dtype: object,
    device: DeviceLike | None,
    like: Tensor | None,
) -> tuple[Any, ...]:
    """Return the arguments of `engine.make` for a draw."""
    if dtype is None and like is not None:
        backend, model = arguments.tensor_of(like, f"random.{call}(like=...)")
        dtype = backend.dtype_name(model)
    name = getattr(dtype, "name", dtype)
    if isinstance(name, str) and not name.startswith(("float", "bfloat")):
        raise messages.not_a_float_dtype(dtype)
    shape = () if size is None else arguments.shape(size)
    return arguments.plan(call, (*parameters, shape), dtype, device, like)


def seed(n: int) -> None:
    """Restart the current framework's generators on every device.

    Args:
        n: The seed, from 0 to 2**32 - 1.

    The framework's own draws restart too, not only devshim's draws.
    """
    tracing.refuse("random.seed", "seed outside: here it would be done once, while the function is compiled")
    value = arguments.integer("n", n)
    if not 0 <= value < 2**32:
        raise bad_argument("n", n, "between 0 and 2**32 - 1", f"ds.random.seed({value % 2**32})")
    backend = current.current()
    explain.show_call(backend, "seed", None, (value,))
    unstarted.ask(backend, CPU, lambda _: backend.seed(value))


value_hints.given_by_name(normal)
value_hints.given_by_name(uniform)
for _public in (normal, seed, uniform):
    keep_source(_public).__module__ = "devshim.random"
