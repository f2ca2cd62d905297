"""Tests of ``like=`` and the ``*_like`` functions in compiled functions, in which a tensor may have no device yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.testing.base import Kit
from devshim.testing.values import feature, hook, numbers

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.devices.device import Device

LIKE: dict[str, Callable[[Any], Any]] = {
    "arange": lambda x: ds.arange(5, 1, -2, like=x),
    "empty": lambda x: ds.empty((2, 3), like=x),
    "empty_like": lambda x: ds.empty_like(x),
    "eye": lambda x: ds.eye(3, 4, k=1, like=x),
    "full": lambda x: ds.full((2, 1), 2.5, like=x),
    "full_like": lambda x: ds.full_like(x, -3),
    "linspace": lambda x: ds.linspace(0, 1, 4, endpoint=False, like=x),
    "ones": lambda x: ds.ones(4, like=x),
    "ones_like": lambda x: ds.ones_like(x),
    "zeros": lambda x: ds.zeros((), like=x),
    "zeros_like": lambda x: ds.zeros_like(x),
    "another dtype": lambda x: ds.full_like(x, 2**40, dtype="int64"),
    "a number": lambda x: ds.asarray(7, like=x),
    "a cast": lambda x: ds.asarray(x, dtype="int64"),
}
"""Functions that return a new tensor beside or of another one, for the same function to compile."""


def _all(x: Any) -> tuple[Any, ...]:
    """Return all of `LIKE`, and the double of the argument."""
    return (*(make(x) for make in LIKE.values()), x + x)


def _leaky(x: Any) -> Any:
    """Return the values above 0, and half of the others, by the functions of a namespace and new tensors."""
    xp = ds.namespace(x)
    low = xp.minimum(x, ds.zeros((), like=x)) * ds.full((), 0.5, like=x)
    parts = ds.asarray([xp.maximum(x, xp.zeros_like(x)), low])
    return parts[0] + parts[1]


class CompiledLikeTests(Kit):
    """New tensors beside the argument of a compiled function."""

    @hook("compiled")
    def test_compiled_like_is_where_its_model_is(self, device: Device) -> None:
        """A new tensor has the device and dtype of its model, and the values that it has outside."""
        outside = dict(zip(LIKE, _all(self.tensor(device)), strict=False))
        for compiled, _ in self.compilers().values():
            inside = self.unless_refused(device, compiled(_all), self.tensor(device))
            if inside is None:
                continue
            for (call, expected), made in zip(outside.items(), inside, strict=False):
                assert ds.device_of(made) is device, call
                assert ds.dtype_of(made) == ds.dtype_of(expected), call
                assert tuple(self.adapter.shape(made)) == tuple(self.adapter.shape(expected)), call
                assert call.startswith("empty") or self.same_numbers(made, ds.to_numpy(expected)), call

    @feature("namespace", "several")
    @hook("compiled")
    def test_compiled_like_is_an_operand(self, device: Device) -> None:
        """The framework's operators use new tensors together with the argument, and their results are stacked."""
        x = numbers() - 5
        for compiled, _ in self.compilers().values():
            y = self.unless_refused(device, compiled(_leaky), ds.from_numpy(x, device))
            assert y is None or self.same_numbers(y, np.where(x > 0, x, 0.5 * x).astype("float32"))

    @hook("compiled")
    def test_compiled_like_refuses_numbers_that_do_not_fit(self) -> None:
        """A number that the dtype cannot represent is refused, as outside."""
        for compiled, once in self.compilers().values():
            if once and not self.adapter.traces_bytecode:
                with pytest.raises(ds.ConversionError, match="300"):
                    compiled(lambda x: ds.full_like(x, 300, dtype="int8"))(self.tensor(ds.cpu()))
