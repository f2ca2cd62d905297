"""Tests of `namespace`: an axis is an integer, and transforms refuse axes without values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.testing.base import Kit
from devshim.testing.values import feature

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.devices.device import Device

TRANSFORMS = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
_REAL = ("rfft", "ihfft")
_OF_ONE = (
    *("sum", "prod", "max", "min", "mean", "std", "var", "argmax", "argmin", "sort", "argsort", "flip"),
    *("unstack", "cumulative_sum", "count_nonzero", "diff", "expand_dims"),
)


def _along_axis(name: str) -> Callable[[Any, Any, Any], Any]:
    return lambda xp, x, axis: getattr(xp, name)(x, axis=axis)


ALONG_AXES: dict[str, Callable[[Any, Any, Any], Any]] = {
    **{name: _along_axis(name) for name in _OF_ONE},
    "any": lambda xp, x, axis: xp.any(xp.greater(x, 0), axis=axis),
    "all": lambda xp, x, axis: xp.all(xp.greater(x, 0), axis=axis),
    "concat": lambda xp, x, axis: xp.concat([x, x], axis=axis),
    "stack": lambda xp, x, axis: xp.stack([x, x], axis=axis),
    "roll": lambda xp, x, axis: xp.roll(x, 1, axis=axis),
    "squeeze": lambda xp, x, axis: xp.squeeze(xp.reshape(x, (1, -1)), axis=axis),
    "moveaxis": lambda xp, x, axis: xp.moveaxis(x, axis, 1),
    "permute_dims": lambda xp, x, axis: xp.permute_dims(x, (1, axis)),
    "take": lambda xp, x, axis: xp.take(x, xp.argmax(x, axis=0), axis=axis),
    "vecdot": lambda xp, x, axis: xp.vecdot(x, x, axis=axis),
}
"""Calls with an axis of a matrix."""


def _skip_missing(xp: Any, x: Any, name: str) -> Any:
    """Return the tensor in the dtype of a transform's argument, or None for a framework without transforms."""
    if not hasattr(xp, "fft"):
        return None
    return x if name in _REAL else xp.astype(x, xp.complex64)


class NamespaceAxesTests(Kit):
    """The axes of the functions of a namespace."""

    @feature("namespace")
    @pytest.mark.parametrize("call", ALONG_AXES)
    def test_an_axis_is_an_int(self, call: str, device: Device) -> None:
        """No function truncates a float."""
        x = ds.from_numpy(np.arange(6, dtype="float32").reshape(2, 3), device)
        ALONG_AXES[call](ds.namespace(x), x, 0)
        with pytest.raises((TypeError, ds.ArgumentError)):
            ALONG_AXES[call](ds.namespace(x), x, 0.0)

    @feature("namespace")
    def test_a_norm_refuses_an_axis_that_is_no_integer(self, device: Device) -> None:
        """Floats and text are refused, also in a tuple; an integer of NumPy is accepted."""
        x = ds.from_numpy(np.ones((3, 3), np.float32), device)
        norm = ds.namespace(x).linalg.vector_norm
        for axis in (0.0, "0", 0j, np.float32(0), (0.0,)):
            with pytest.raises(TypeError, match="must be an int") as caught:
                norm(x, axis=axis)
            assert isinstance(caught.value, ds.ArgumentError)
        np.testing.assert_array_equal(ds.to_numpy(norm(x, axis=np.int64(0))), ds.to_numpy(norm(x, axis=0)))

    @feature("namespace")
    @pytest.mark.parametrize("k", [2**31, -(2**31), 2**40, -(2**40), np.int64(1)])
    def test_a_diagonal_may_be_outside_of_the_matrix(self, k: int, device: Device) -> None:
        """The elements above and below a diagonal are selected exactly, wherever it is."""
        a = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
        xp, x = ds.namespace(), ds.from_numpy(a, device)
        for call in ("tril", "triu"):
            y = getattr(xp, call)(x, k=k)
            assert ds.device_of(y) is device
            np.testing.assert_array_equal(ds.to_numpy(y), getattr(np, call)(a, k))

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
