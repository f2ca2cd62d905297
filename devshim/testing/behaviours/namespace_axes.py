"""Tests of `namespace`: axes that are not integers are refused, and so are transforms of no values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.testing.base import Kit
from devshim.testing.values import feature

if TYPE_CHECKING:
    from devshim.devices.device import Device

_REDUCTIONS = ("all", "any", "argmax", "argmin", "count_nonzero", "max", "mean", "min", "prod", "std", "sum", "var")
_NAMED = (*_REDUCTIONS, "argsort", "cumulative_prod", "cumulative_sum", "diff", "flip", "sort", "unstack")


def _call_by_name(name: str, xp: Any, x: Any, axis: Any) -> Any:
    return getattr(xp, name)(x, axis=axis)


OF_AXIS: dict[str, Callable[[Any, Any, Any], Any]] = {
    **{name: partial(_call_by_name, name) for name in _NAMED},
    "concat": lambda xp, x, axis: xp.concat([x, x], axis=axis),
    "cross": lambda xp, x, axis: xp.linalg.cross(x, x, axis=axis),
    "expand_dims": lambda xp, x, axis: xp.expand_dims(x, axis=axis),
    "expand_dims by position": lambda xp, x, axis: xp.expand_dims(x, axis),
    "moveaxis": lambda xp, x, axis: xp.moveaxis(x, axis, 1),
    "moveaxis to": lambda xp, x, axis: xp.moveaxis(x, 1, axis),
    "permute_dims": lambda xp, x, axis: xp.permute_dims(x, (axis, 1)),
    "repeat": lambda xp, x, axis: xp.repeat(x, 2, axis=axis),
    "roll": lambda xp, x, axis: xp.roll(x, 1, axis=axis),
    "squeeze": lambda xp, x, axis: xp.squeeze(x[:1], axis=axis),
    "stack": lambda xp, x, axis: xp.stack([x, x], axis=axis),
    "vecdot": lambda xp, x, axis: xp.vecdot(x, x, axis=axis),
    "vector_norm": lambda xp, x, axis: xp.linalg.vector_norm(x, axis=axis),
}
"""Functions of a tensor and an axis."""

WRONG: tuple[Any, ...] = (0.0, True, "0", 0j, np.float32(0), (0.0,), (True,), (None,))

TRANSFORMS = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
_REAL = ("rfft", "ihfft")


def _skip_missing(xp: Any, x: Any, name: str) -> Any:
    """Return the tensor in the dtype of a transform's argument, or None for a framework without transforms."""
    if not hasattr(xp, "fft"):
        return None
    return x if name in _REAL else xp.astype(x, xp.complex64)


class NamespaceAxesTests(Kit):
    """The axes of functions."""

    @feature("namespace")
    @pytest.mark.parametrize("call", OF_AXIS)
    def test_an_axis_that_is_no_integer_is_refused(self, call: str, device: Device) -> None:
        """Floats, bools and text are no axes: the call raises one `TypeError`, which is an `ArgumentError`."""
        x = ds.from_numpy(np.ones((3, 3), np.float32), device)
        for axis in WRONG:
            with pytest.raises(TypeError, match="must be an int") as caught:
                OF_AXIS[call](ds.namespace(x), x, axis)
            assert isinstance(caught.value, ds.ArgumentError)

    @feature("namespace")
    @pytest.mark.parametrize("call", OF_AXIS)
    def test_an_integer_of_numpy_is_an_axis(self, call: str, device: Device) -> None:
        """Axes may be computed with NumPy."""
        x = ds.from_numpy(np.ones((3, 3), np.float32), device)
        xp = ds.namespace(x)
        for found, expected in zip(
            _as_list(OF_AXIS[call](xp, x, np.int64(0))), _as_list(OF_AXIS[call](xp, x, 0)), strict=True
        ):
            assert ds.device_of(found) is device
            np.testing.assert_array_equal(ds.to_numpy(found), ds.to_numpy(expected))

    @feature("namespace")
    @pytest.mark.parametrize("call", TRANSFORMS)
    def test_transforms_of_no_values_are_refused(self, call: str, device: Device) -> None:
        """A transform needs a value along its axis, which is an integer; there may be no vectors to transform."""
        x = ds.zeros((2, 0, 3), dtype="float32", device=device)
        xp = ds.namespace(x)
        x = _skip_missing(xp, x, call)
        if x is None:
            return
        transform = getattr(xp.fft, call)
        with pytest.raises(ds.ArgumentError, match=r"no values to transform|to -\d+ values"):
            transform(x, axis=1)
        with pytest.raises(TypeError, match="must be an int"):
            transform(x, axis=0.0)
        for options in ({"axis": 0}, {"axis": -1}, {"axis": 2, "n": 8}):
            y = transform(x, **options)
            expected = np.asarray(getattr(np.fft, call)(ds.to_numpy(x), **options))
            assert (ds.device_of(y), self.adapter.shape(y)) == (device, expected.shape)

    @feature("namespace")
    def test_transforms_along_several_axes_need_values(self, device: Device) -> None:
        """Each of the axes needs a value."""
        x = ds.zeros((2, 0, 3), dtype="float32", device=device)
        xp = ds.namespace(x)
        x = _skip_missing(xp, x, "fft")
        if x is None:
            return
        for axes in (None, (0, 1), (-2,)):
            with pytest.raises(ds.ArgumentError, match="no values to transform"):
                xp.fft.fftn(x, axes=axes)
        assert self.adapter.shape(xp.fft.fftn(x, axes=(0, 2))) == (2, 0, 3)
        with pytest.raises(ds.ArgumentError, match="n is 0"):
            xp.fft.fftfreq(0, device=device)


def _as_list(found: Any) -> list[Any]:
    return list(found) if isinstance(found, (list, tuple)) else [found]
