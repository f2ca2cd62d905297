"""Tests of ``like=``: a new tensor with the framework, dtype and device of another one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.testing.base import Kit
from devshim.testing.values import feature, numbers

if TYPE_CHECKING:
    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device

MADE: dict[str, tuple[Callable[..., Tensor], Any]] = {
    "asarray": (lambda **kw: ds.asarray([[1, 2], [3, 4]], **kw), [[1, 2], [3, 4]]),
    "asarray of a number": (lambda **kw: ds.asarray(3, **kw), 3),
    "asarray of an array": (lambda **kw: ds.asarray(numbers(dtype="float32"), **kw), numbers()),
    "asarray of a NumPy number": (lambda **kw: ds.asarray(np.int8(3), **kw), 3),
    "asarray of a list of arrays": (lambda **kw: ds.asarray([numbers(), numbers()], **kw), [numbers(), numbers()]),
    "zeros": (lambda **kw: ds.zeros((2, 3), **kw), np.zeros((2, 3))),
    "ones": (lambda **kw: ds.ones((), **kw), np.ones(())),
    "full": (lambda **kw: ds.full((2, 3), 7, **kw), np.full((2, 3), 7)),
    "arange": (lambda **kw: ds.arange(5, **kw), np.arange(5)),
    "linspace": (lambda **kw: ds.linspace(0, 4, 5, **kw), np.arange(5)),
    "linspace without its end": (lambda **kw: ds.linspace(0, 4, 4, endpoint=False, **kw), np.arange(4)),
    "eye": (lambda **kw: ds.eye(2, 4, k=1, **kw), np.eye(2, 4, 1)),
}
"""Calls that make a tensor, and its values in any dtype."""

OTHERS: dict[str, Callable[..., Tensor]] = {
    "empty": lambda **kw: ds.empty((2, 0), **kw),
    "uniform": lambda **kw: ds.random.uniform(size=3, **kw),
    "normal": lambda **kw: ds.random.normal(size=3, **kw),
}
"""Calls whose values are unknown; they make floats."""

CALLS: dict[str, Callable[..., Tensor]] = {**{call: make for call, (make, _) in MADE.items()}, **OTHERS}


class LikeTests(Kit):
    """``like=`` of every creation and random function."""

    @pytest.fixture
    def _restore_defaults(self) -> Iterator[None]:
        """Restore the framework's own defaults after the test."""
        yield
        ds.set_default_dtype(None)

    @feature("create", "float64")
    @pytest.mark.parametrize("call", CALLS)
    def test_like_gives_the_dtype_and_the_device(self, call: str, device: Device) -> None:
        """The result has the model's dtype, device and framework, and the same values as without ``like=``."""
        for dtype in ("float32", "float64") if call in OTHERS else ("int32", "float32", "float64"):
            model = self.tensor(device, (2,), dtype)
            x = CALLS[call](like=model)
            assert self.adapter.is_tensor(type(x))
            assert (ds.dtype_of(x), ds.device_of(x)) == (dtype, device)
            assert call in OTHERS or self.same_numbers(x, MADE[call][1])

    @feature("create", "float64")
    @pytest.mark.parametrize("call", CALLS)
    @pytest.mark.usefixtures("_restore_defaults")
    def test_like_overrides_the_defaults(self, call: str, other_device: Device) -> None:
        """Inside `on`, and with a default dtype, the result is still like its model."""
        model = self.tensor("cpu", (), "float32")
        ds.set_default_dtype("float64", int="int32")
        with ds.on(other_device):
            x = CALLS[call](like=model)
        assert (ds.dtype_of(x), ds.device_of(x)) == ("float32", ds.cpu())

    @feature("create", "float64")
    @pytest.mark.parametrize("call", CALLS)
    def test_arguments_override_like(self, call: str, other_device: Device) -> None:
        """``dtype=`` and ``device=`` take precedence, together and each for itself."""
        x = self.tensor(other_device, (), "float32")
        both = CALLS[call](like=x, dtype="float64", device="cpu")
        assert (ds.dtype_of(both), ds.device_of(both)) == ("float64", ds.cpu())
        wide, host = CALLS[call](like=x, dtype="float64"), CALLS[call](like=x, device="cpu")
        assert (ds.dtype_of(wide), ds.device_of(wide)) == ("float64", other_device)
        assert (ds.dtype_of(host), ds.device_of(host)) == ("float32", ds.cpu())

    @feature("create")
    @pytest.mark.parametrize("call", CALLS)
    @pytest.mark.parametrize("model", ["float32", [1.0], 1.0, {}], ids=repr)
    def test_like_refuses_what_is_not_a_tensor(self, call: str, model: Any) -> None:
        """Anything but a tensor raises `NotATensorError`, which names the call."""
        with pytest.raises(ds.NotATensorError, match=r"like=\.\.\."):
            CALLS[call](like=model)

    @feature("create")
    def test_asarray_like_casts_and_moves_a_tensor(self, away: tuple[Device, Device]) -> None:
        """A tensor gets the model's dtype and device; it is returned itself if it has both."""
        x, model = self.tensor(away[0]), self.tensor(away[1], (2,), "int32")
        made = ds.asarray(x, like=model)
        assert (ds.dtype_of(made), ds.device_of(made)) == ("int32", away[1])
        assert self.same_numbers(made, numbers())
        assert ds.asarray(x, like=x) is x
        assert ds.asarray(x, like=x, copy=True) is not x
        with pytest.raises(ds.CopyNeededError):
            ds.asarray(x, like=model, copy=False)

    @feature("create", "several")
    def test_asarray_like_stacks_tensors(self, away: tuple[Device, Device]) -> None:
        """A list of tensors is stacked in the model's dtype, on its device."""
        x, model = self.tensor(away[0], (2,)), self.tensor(away[1], (), "int32")
        made = ds.asarray([[x, x]], like=model)
        assert (ds.dtype_of(made), ds.device_of(made)) == ("int32", away[1])
        assert self.same_numbers(made, [[numbers((2,))] * 2])

    @feature("create")
    def test_like_gives_the_framework(self) -> None:
        """With ``like=`` a NumPy array, the result is a NumPy array, whichever framework is current."""
        model = numbers((2,), "float32")
        for call, make in CALLS.items():
            x = make(like=model)
            assert type(x) is np.ndarray or np.ndim(x) == 0, call
            assert str(x.dtype) == "float32", call
        if type(self.tensor()) is not np.ndarray:
            with pytest.raises(ds.ArgumentError, match=r"ds\.asarray\(like=...\) needs tensors of one framework"):
                ds.asarray(self.tensor(), like=model)
            with pytest.raises(ds.ArgumentError, match=r"ds\.asarray\(like=...\) needs tensors of one framework"):
                ds.asarray([self.tensor(), self.tensor()], like=model)

    @feature("random")
    @pytest.mark.parametrize("call", ["uniform", "normal"])
    def test_draws_refuse_a_model_of_integers(self, call: str) -> None:
        """Floats cannot be drawn in the dtype of an integer tensor; ``dtype=`` helps."""
        model = self.tensor(dtype="int32")
        with pytest.raises(ds.ArgumentError, match="floating dtype"):
            OTHERS[call](like=model)
        assert ds.dtype_of(OTHERS[call](like=model, dtype="float32")) == "float32"

    @feature("create", "missing_device")
    @pytest.mark.parametrize("call", CALLS)
    def test_like_does_not_hide_a_missing_device(self, call: str) -> None:
        """A device that does not exist is refused together with ``like=``, too."""
        with pytest.raises(ds.DeviceNotFoundError):
            CALLS[call](like=self.tensor(), device="gpu:99")
