"""Random tensors, generated on the requested device, and one seed for all generators in Paddle.

Requirements that this module meets:

* Values are generated on the device, not copied there, and the process-wide device is not read.
* ``[low, high)`` is true for every dtype. Paddle's scaling reaches ``high`` if ``low`` is not 0, and rounding to 16
  bits once in 512 values of bfloat16. So values are limited to the largest number of the dtype below it.
* ``paddle.seed`` restarts a plug-in's generators only while one of its devices is the process-wide one (3.3); here it
  always does.
* Paddle's operators for integers take no seed and bounds of 32 bits (3.3), so integers are computed from floats of 53
  bits, and a permutation is the order of such floats.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import paddle
from paddle import _C_ops

from devshim.contract.backend import Backend
from devshim.devices.ranges import largest_draw
from devshim.errors import ConversionError
from devshim_backends._paddle import devices
from devshim_backends._paddle.creation import DTYPE_NAMES, PADDLE_DTYPES, require_dynamic
from devshim_backends._paddle.devices import core
from devshim_backends._paddle.tensors import HOST_PLACE

if TYPE_CHECKING:
    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device

_FLOAT32, _FLOAT64, _INT64 = (PADDLE_DTYPES[name] for name in ("float32", "float64", "int64"))
_DEVICE_GENERATOR = 0
"""The seed that means "use the device's own generator"."""


def _draw_on_host(draw: Callable[..., Tensor | None]) -> Callable[[float, float, tuple[int, ...]], Tensor | None]:
    """Return a function that draws float32 on the host; it returns None if the slow path must draw, or refuse."""

    def draw_fast(first: float, second: float, shape: tuple[int, ...]) -> Tensor | None:
        if not paddle.in_dynamic_mode() or paddle.get_default_dtype() != "float32" or 0 in shape:
            return None
        return draw(list(shape), float(first), float(second))

    return draw_fast


def _uniform(shape: list[int], low: float, high: float) -> Tensor | None:
    if low and not devices.only_host:
        return None  # with other devices, an operator without a place may compute there
    drawn = _C_ops.uniform(shape, _FLOAT32, low, high, _DEVICE_GENERATOR, HOST_PLACE)
    return _C_ops.clip(drawn, low, largest_draw(low, high, "float32")) if low else drawn


def _randint(low: int, high: int, shape: tuple[int, ...]) -> Tensor | None:
    """Return what `PaddleRandom.randint` draws on the host; None if the slow path must draw, or refuse."""
    if not paddle.in_dynamic_mode() or not devices.only_host or 0 in shape:
        return None
    fractions = _C_ops.uniform(list(shape), _FLOAT64, 0.0, 1.0, _DEVICE_GENERATOR, HOST_PLACE)
    steps = _C_ops.cast(_C_ops.floor(fractions * float(high - low)), _INT64)
    return steps + low if low else steps


HOST_DRAWS: dict[str, Any] = {
    "normal": _draw_on_host(
        lambda shape, loc, scale: _C_ops.gaussian(shape, loc, scale, _DEVICE_GENERATOR, _FLOAT32, HOST_PLACE)
    ),
    "randint": _randint,
    "uniform": _draw_on_host(_uniform),
}
"""See `FastPaths.host_makers`."""


class PaddleRandom(Backend):
    """The mixin for random tensors."""

    def uniform(
        self,
        low: float,
        high: float,
        shape: tuple[int, ...],
        dtype: Any | None,
        device: Device,
        seed: int | None = None,
    ) -> Tensor:
        require_dynamic(self, "random.uniform")
        name, wide = _choose_dtype(dtype or paddle.get_default_dtype(), "uniform")
        made = self._fractions(shape, device, seed, wide, low, high)
        if PADDLE_DTYPES[name] is wide and low == 0:
            return made
        with self.scope(device):
            limited = paddle.clip(made, max=largest_draw(low, high, name))
            return limited if PADDLE_DTYPES[name] is wide else limited.astype(PADDLE_DTYPES[name])

    def normal(
        self,
        loc: float,
        scale: float,
        shape: tuple[int, ...],
        dtype: Any | None,
        device: Device,
        seed: int | None = None,
    ) -> Tensor:
        require_dynamic(self, "random.normal")
        name, wide = _choose_dtype(dtype or paddle.get_default_dtype(), "normal")
        place = self.to_native(device)
        made = _copy_to_place(
            _C_ops.gaussian(list(shape), float(loc), float(scale), _seed_of_operator(seed), wide, place), place
        )
        return made if PADDLE_DTYPES[name] is wide else self.cast(made, PADDLE_DTYPES[name])

    def randint(
        self, low: int, high: int, shape: tuple[int, ...], dtype: Any | None, device: Device, seed: int | None = None
    ) -> Tensor:
        require_dynamic(self, "random.randint")
        there = self.device_for_dtype("float64", device)
        fractions = self._fractions(shape, there, seed)
        with self.scope(there):
            steps = paddle.floor(fractions * float(high - low)).astype("int64")
            return self._finish(steps + low, dtype, device)

    def permutation(self, n: int, dtype: Any | None, device: Device, seed: int | None = None) -> Tensor:
        require_dynamic(self, "random.permutation")
        there = self.device_for_dtype("float64", device)
        fractions = self._fractions((n,), there, seed)
        with self.scope(there):
            order = paddle.argsort(fractions) if n else fractions.astype("int64")
            return self._finish(order, dtype, device)

    def bernoulli(
        self, p: float, shape: tuple[int, ...], dtype: Any | None, device: Device, seed: int | None = None
    ) -> Tensor:
        require_dynamic(self, "random.bernoulli")
        there = self.device_for_dtype("float64", device)
        fractions = self._fractions(shape, there, seed)
        with self.scope(there):
            return self._finish(fractions < float(p), dtype, device)

    def _fractions(
        self,
        shape: tuple[int, ...],
        device: Device,
        seed: int | None,
        dtype: Any = PADDLE_DTYPES["float64"],
        low: float = 0.0,
        high: float = 1.0,
    ) -> Tensor:
        """Return uniform floats, drawn on a device."""
        place = self.to_native(device)
        seed = _seed_of_operator(seed)
        return _copy_to_place(_C_ops.uniform(list(shape), dtype, float(low), float(high), seed, place), place)

    def _finish(self, x: Tensor, dtype: Any | None, device: Device) -> Tensor:
        """Return numbers in the requested dtype, on the requested device."""
        made, place = x if dtype is None else x.astype(dtype), self.to_native(device)
        return made if made.place._equals(place) else made._copy_to(place, True)

    def seed(self, value: int) -> None:
        paddle.seed(value)
        for name in core.get_all_custom_device_type() or ():
            for index in range(core.get_custom_device_count(name)):
                core.default_custom_device_generator(core.CustomPlace(name, index)).manual_seed(value)


def _seed_of_operator(seed: int | None) -> int:
    """Return the seed that one operator draws with, of 31 bits and not 0; 0 means the device's own generator."""
    return _DEVICE_GENERATOR if seed is None else seed % (2**31 - 1) + 1


def _copy_to_place(made: Tensor, place: Any) -> Tensor:
    """Return a tensor on its requested place: an empty one from a plug-in that lacks the kernel is left on the host."""
    return made if made.size or made.place._equals(place) else made._copy_to(place, True)


def _choose_dtype(dtype: Any, call: str) -> tuple[str, Any]:
    """Return the requested dtype's name, and the dtype to draw in: 16-bit floats are drawn as float32, and cast."""
    name = DTYPE_NAMES.get(dtype, str(dtype))
    if name in ("float32", "float64"):
        return name, PADDLE_DTYPES[name]
    if name in ("float16", "bfloat16"):
        return name, PADDLE_DTYPES["float32"]
    msg = f"ds.random.{call} was asked for {name}, but PaddlePaddle draws only floats"
    raise ConversionError(msg, "draw floats, then cast them")
