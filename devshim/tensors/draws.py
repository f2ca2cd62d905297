"""The checked arguments of random functions, and the plan of each draw for `devshim.transfers.engine.make`.

A draw has one of three sources: the framework's own generator of the device; a `Generator`, which gives each of its
draws a number; or a portable `Generator`, whose numbers are computed on the host (`devshim.tensors.portable_draws`).
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from devshim.devices.device import CPU
from devshim.devices.dtypes import DTYPES, numpy_dtype
from devshim.errors import messages
from devshim.errors.messages import bad_argument
from devshim.registry import current, tracing
from devshim.tensors import arguments, default_dtypes, plans, portable_draws, value_hints
from devshim.tensors.portable_draws import Words
from devshim.transfers import engine, observing

if TYPE_CHECKING:
    from devshim.contract.backend import Backend, Tensor
    from devshim.devices.device import Device
    from devshim.devices.parsing import DeviceLike
    from devshim.tensors.arguments import Shape
    from devshim.tensors.generators import Generator

__all__ = ["Result", "bernoulli", "normal", "permutation", "randint", "uniform"]

_NARROW, _LARGEST_BFLOAT16 = 65504.0, 3.3895e38
"""The largest number of float16, which all other floating dtypes can represent, and the largest number of bfloat16."""
MOST = 2**53
"""The maximum number of values that a framework's `randint` chooses from: those of a 53-bit fraction."""
_OUTSIDE = "draw outside and pass the tensor in: a compiled function would repeat the same numbers"
_KINDS = {"float": ("float", "bfloat"), "int": ("int", "uint"), "any": DTYPES}
_PORTABLE_DTYPES = {"float": "float32", "int": "int64", "any": "bool"}
_PORTABLE_FLOATS = ("float16", "bfloat16", "float32", "float64")


class Result:
    """The requested result of a draw: its dtype, its device, and the source of its numbers.

    Args:
        dtype: The dtype, or None for the default.
        device: The device, or None for the default.
        like: A tensor whose framework, dtype and device the result has, or None.
        source: The generator; None for the framework's generator.
    """

    def __init__(self, dtype: object, device: DeviceLike | None, like: Tensor | None, source: Generator | None) -> None:
        self._dtype, self._device, self._like, self._source = dtype, device, like, source

    @property
    def is_portable(self) -> bool:
        """True if the numbers come from a portable generator."""
        return self._source is not None and self._source.portable

    def plan(self, call: str, kind: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments of `engine.make` for a draw.

        Args:
            call: The adapter's method, such as ``"uniform"``.
            kind: ``"float"``, ``"int"`` or ``"any"``: the dtypes that the call draws.
            args: The arguments of the adapter's method before the dtype.
        """
        source = self._source
        if source is not None:
            tracing.refuse(f"random.{call}", _OUTSIDE)
        backend, wanted, target = self._find(call)
        if wanted is None:
            wanted = default_dtypes.default_for(call, args)
        name = None if wanted is None else arguments.dtype_name(backend, wanted)
        if name is not None and not name.startswith(_KINDS[kind]):
            raise messages.not_a_float_dtype(wanted) if kind == "float" else _not_an_integer_dtype(wanted)
        if kind == "int":
            _check_range(name or (_PORTABLE_DTYPES[kind] if self.is_portable else None), args)
        elif call == "uniform":
            _check_width(backend, name or (_PORTABLE_DTYPES[kind] if self.is_portable else None), *args[:2])
        if source is None:
            return plans.plan_for(backend, call, target, args, wanted)
        if source.portable:
            return _portable(backend, target, call, name or _PORTABLE_DTYPES[kind], args, source)
        source.require(backend)
        native = arguments.dtype(backend, wanted)
        observing.show_call(backend, call, target, args, wanted)
        return (backend, target, None, partial(getattr(backend, call), seed=source.next_seed()), *args, native, target)

    def _find(self, call: str) -> tuple[Backend, Any, Device]:
        """Return the framework, the dtype or None, and the device."""
        if self._like is None:
            backend = current.current()
            return backend, self._dtype, arguments.target(backend, self._device)
        name = f"random.{call}(like=...)"
        backend, model = arguments.tensor_of(self._like, name)
        return backend, *plans.dtype_and_device_like(backend, model, self._dtype, self._device, name)


def _not_an_integer_dtype(dtype: object) -> Exception:
    return bad_argument("dtype", dtype, "an integer dtype", "leave dtype out, or write dtype='int64'; cast the result")


def _check_range(name: str | None, args: tuple[Any, ...]) -> None:
    """Refuse integers that the dtype cannot represent."""
    if name is None or name not in DTYPES:
        return
    low, high = args[:2] if len(args) == 3 else (0, args[0])
    bounds = np.iinfo(name)
    if low < bounds.min or high - 1 > bounds.max:
        wider = "int64" if low >= -(2**63) and high <= 2**63 else "uint64"
        other = f"dtype='{wider}', or " if name != wider and (low >= 0 or wider == "int64") else ""
        hint = f"write {other}numbers from {bounds.min} to {bounds.max}"
        raise bad_argument("dtype", name, f"able to represent the numbers from {low} to {high - 1}", hint)


def _check_width(backend: Backend, name: str | None, low: float, high: float) -> None:
    """Refuse bounds whose difference overflows in the dtype: the frameworks compute ``low + (high - low) * x``."""
    if high - low <= _NARROW:
        return
    if name is None:
        name = backend.dtype_name(backend.zeros((0,), None, CPU))
    largest = _LARGEST_BFLOAT16 if name == "bfloat16" else float(np.finfo(numpy_dtype(name)).max)
    if not high - low <= largest:
        accepted = f"at most {largest:.4g} apart, which is the largest number of {name}"
        raise bad_argument("(low, high)", (low, high), accepted, "write bounds that are closer, or a wider dtype")


def _portable(
    backend: Backend, target: Device, call: str, name: str, args: tuple[Any, ...], source: Generator
) -> tuple[Any, ...]:
    """Draw on the host, and return the arguments of `engine.make` that copy the numbers to the device."""
    if call in ("uniform", "normal") and name not in _PORTABLE_FLOATS:
        raise bad_argument("dtype", name, f"one of {', '.join(_PORTABLE_FLOATS)}", "write dtype='float32'")
    native = arguments.dtype(backend, name)
    try:
        array = _draw_portable(call, name, args, Words(*source.next_words()))
    except MemoryError as error:
        raise messages.out_of_memory(backend, CPU, None) from error
    observing.show_call(backend, "from_numpy", target, (array,))
    found = engine.from_host(backend, array, target, copy=True)
    if name != "bfloat16":
        return found
    return (*found[:3], partial(_cast_from_numpy, backend, native), *found[4:])


def _draw_portable(call: str, name: str, args: tuple[Any, ...], words: Words) -> np.ndarray:
    """Return the array of a portable draw; bfloat16 as the float32 numbers that it can represent."""
    wide = "float32" if name == "bfloat16" else name
    if call == "permutation":
        return portable_draws.permutation(words, args[0]).astype(wide)
    *parameters, shape = args
    count = prod(shape)
    if call in ("uniform", "normal"):
        values = getattr(portable_draws, call)(words, count, *parameters, name)
    else:
        values = getattr(portable_draws, call)(words, count, *parameters).astype(numpy_dtype(wide))
    return np.asarray(values).reshape(shape)


def _cast_from_numpy(backend: Backend, dtype: Any, array: np.ndarray, device: Device, copy: bool) -> Tensor:
    return backend.cast(backend.from_numpy(array, device, copy), dtype)


def uniform(low: Any, high: Any, size: Shape | None, result: Result) -> tuple[Any, ...]:
    """Return the plan of `devshim.random.uniform`."""
    if value_hints.is_shape(low):
        raise value_hints.no_bound("uniform", "low", low)
    bounds = arguments.finite("low", low), arguments.finite("high", high)
    if not bounds[0] <= bounds[1]:
        raise bad_argument("high", high, f"at least low ({low})", f"swap them: ds.random.uniform({high}, {low})")
    return result.plan("uniform", "float", (*bounds, arguments.optional_shape(size)))


def normal(loc: Any, scale: Any, size: Shape | None, result: Result) -> tuple[Any, ...]:
    """Return the plan of `devshim.random.normal`."""
    if value_hints.is_shape(loc):
        raise value_hints.no_bound("normal", "loc", loc)
    parameters = arguments.real("loc", loc), arguments.real("scale", scale)
    if not parameters[1] >= 0:
        hint = "a standard deviation is 0 or more: write scale=1.0"
        raise bad_argument("scale", scale, "a number that is not negative", hint)
    return result.plan("normal", "float", (*parameters, arguments.optional_shape(size)))


def randint(low: Any, high: Any, size: Shape | None, result: Result) -> tuple[Any, ...]:
    """Return the plan of `devshim.random.randint`."""
    if value_hints.is_shape(low):
        raise value_hints.no_bound("randint", "low", low)
    if high is None:
        low, high = 0, low
    first, end = arguments.integer("low", low), arguments.integer("high", high)
    if first >= end:
        hint = "the integers are from low to high - 1: ds.random.randint(0, 10), or ds.random.randint(10)"
        raise bad_argument("high", high, f"greater than low ({low})", hint)
    if first < -(2**63) or end > (2**63 if first < 0 else 2**64):
        hint = "the widest draws are generator.randint(-(2**63), 2**63) and generator.randint(2**64, dtype='uint64')"
        raise bad_argument("(low, high)", (low, high), "the bounds of 64-bit integers", hint)
    if not result.is_portable and (end - first > MOST or end >= 2**63):
        hint = "ds.random.Generator(0, portable=True).randint(...) draws from all 64-bit integers"
        accepted = "at most 2**53 apart" if end - first > MOST else "below 2**63"
        raise bad_argument("(low, high)", (low, high), accepted, hint)
    return result.plan("randint", "int", (first, end, arguments.optional_shape(size)))


def permutation(n: Any, result: Result) -> tuple[Any, ...]:
    """Return the plan of `devshim.random.permutation`."""
    (count,) = arguments.shape(arguments.integer("n", n))
    return result.plan("permutation", "int", (count,))


def bernoulli(p: Any, size: Shape | None, result: Result) -> tuple[Any, ...]:
    """Return the plan of `devshim.random.bernoulli`."""
    if value_hints.is_shape(p):
        raise value_hints.no_bound("bernoulli", "p", p)
    probability = arguments.real("p", p)
    if not 0 <= probability <= 1:
        raise bad_argument("p", p, "a probability, from 0 to 1", "write p=0.5")
    return result.plan("bernoulli", "any", (float(probability), arguments.optional_shape(size)))
