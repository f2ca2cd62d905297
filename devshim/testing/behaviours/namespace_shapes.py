"""Tests of `namespace`: tensors without elements, and with many axes, of all dtypes, have NumPy's results."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.testing.base import Kit
from devshim.testing.values import feature, numpy_dtype

if TYPE_CHECKING:
    from devshim.devices.device import Device

HALVES = [pytest.param(name, marks=feature(name)) for name in ("float16", "bfloat16")]

KEEP_DTYPE: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda xp, x: xp.add(x, x),
    "concat": lambda xp, x: xp.concat([x, x]),
    "exp": lambda xp, x: xp.exp(x),
    "mean": lambda xp, x: xp.mean(x, axis=1),
    "multiply": lambda xp, x: xp.multiply(x, 2),
    "operator": lambda xp, x: x + x,
    "reshape": lambda xp, x: xp.reshape(x, (-1,)),
    "sum": lambda xp, x: xp.sum(x),
    "where": lambda xp, x: xp.where(xp.greater(x, 0), x, x),
}
"""Functions whose results have the dtype of their argument."""


class NamespaceShapesTests(Kit):
    """Functions of tensors without elements, and of tensors with many axes."""

    @feature("namespace")
    @pytest.mark.parametrize("dtype", HALVES)
    @pytest.mark.parametrize("name", KEEP_DTYPE)
    def test_halves_without_elements_keep_their_dtype(self, name: str, dtype: str, device: Device) -> None:
        """Results of float16 and bfloat16 tensors have their dtype and device, also without elements."""
        if self.backend == "paddle" and device.kind == "cpu":
            return  # it has few kernels of these dtypes on the CPU
        x = ds.from_numpy(np.zeros((0, 3), numpy_dtype(dtype)), device)
        y = KEEP_DTYPE[name](ds.namespace(x), x)
        assert (ds.dtype_of(y), ds.device_of(y)) == (dtype, device)
