"""Tests of `place`: it returns the same object if it is already there, and otherwise the same bits on the target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import devshim as ds
from devshim.testing.base import Kit
from devshim.testing.values import DTYPES, OPTIONAL, bits, feature, numbers, sample

if TYPE_CHECKING:
    from devshim.devices.device import Device

SHAPES = ((), (0,), (1,), (5,), (2, 0, 3), (2, 3, 4))


class PlaceTests(Kit):
    """Identity, arrival, and what does not change."""

    @feature("place")
    @pytest.mark.parametrize("shape", SHAPES, ids=str)
    @pytest.mark.parametrize("copy", [None, False])
    def test_place_returns_the_same_object_if_it_is_there(
        self, device: Device, shape: tuple[int, ...], copy: bool | None
    ) -> None:
        """If the tensor is already on the device, `place` returns the same object."""
        x = self.tensor(device, shape)
        assert ds.place(x, device, copy=copy) is x
        assert ds.place(x, str(device), copy=copy, non_blocking=True) is x

    @feature("place")
    @pytest.mark.parametrize("shape", SHAPES, ids=str)
    def test_place_moves_a_tensor(self, away: tuple[Device, Device], shape: tuple[int, ...]) -> None:
        """Otherwise the result is on the device, of the framework's type and equal bit for bit.

        The source is unchanged.
        """
        source, target = away
        a = sample(shape=shape)
        x = ds.from_numpy(a, source)
        y = ds.place(x, target)
        assert ds.device_of(y) is target
        assert ds.device_of(x) is source
        assert self.alike(x, y)
        assert bits(ds.to_numpy(y)) == bits(a) == bits(ds.to_numpy(x))

    @feature("place")
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_place_moves_every_dtype(self, away: tuple[Device, Device], dtype: str) -> None:
        """Moving does not change the dtype or any bit."""
        a = sample(dtype)
        y = ds.place(ds.from_numpy(a, away[0]), away[1])
        assert self.adapter.dtype_name(y) == dtype
        assert bits(ds.to_numpy(y)) == bits(a)

    @feature("place")
    @pytest.mark.parametrize("dtype", OPTIONAL)
    def test_place_moves_optional_dtypes(self, device: Device, dtype: str) -> None:
        """A dtype is supported with all its bits, or refused by every function; it never becomes another dtype."""
        a = sample(dtype)
        try:
            x = ds.from_numpy(a, device)
        except ds.ConversionError:
            with pytest.raises(ds.ConversionError):
                ds.zeros(2, dtype=dtype, device=device)
            return
        assert self.adapter.dtype_name(x) == self.adapter.dtype_name(ds.zeros(2, dtype=dtype, device=device)) == dtype
        assert bits(ds.to_numpy(ds.copy(x, device))) == bits(a)

    @feature("place")
    def test_copy_false_never_copies(self, away: tuple[Device, Device]) -> None:
        """``copy=False`` raises instead of copying, and names the source and the target."""
        x = self.tensor(away[0])
        with pytest.raises(ds.CopyNeededError, match=f"{away[0]} cannot be on {away[1]}"):
            ds.place(x, away[1], copy=False)

    @feature("place")
    @pytest.mark.parametrize("copy", [1, 0, "yes", ()], ids=repr)
    def test_copy_is_none_true_or_false(self, copy: Any) -> None:
        """Any other ``copy`` is refused: a truthy value must not decide whether memory is shared."""
        with pytest.raises(ds.ArgumentError):
            ds.place(self.tensor(), "cpu", copy=copy)

    @feature("place")
    def test_place_keeps_a_view_that_is_there(self, device: Device) -> None:
        """A view that is placed on its own device remains the same view and shares the same memory."""
        x = self.tensor(device)
        view = self.part(x, slice(1, None))
        assert ds.place(view, device) is view
        assert ds.device_of(view) is device

    @feature("place")
    @pytest.mark.parametrize("part", ["rows", "step", "column"])
    def test_a_moved_view_is_independent(self, away: tuple[Device, Device], part: str) -> None:
        """A moved view has only the view's values, regardless of its strides, and shares no memory with its base."""
        index: Any = {"rows": slice(1, 3), "step": slice(0, 3, 2), "column": (slice(None), 1)}[part]
        x = self.tensor(away[0])
        y = ds.place(self.part(x, index), away[1])
        assert ds.device_of(y) is away[1]
        if self.can_scribble(away[0]):
            self.scribble(x)
        assert self.same_numbers(y, numbers()[index])

    @feature("place")
    def test_place_round_trip(self, away: tuple[Device, Device]) -> None:
        """A tensor that is moved and moved back has the same bits."""
        a = sample("float32", (17, 3))
        x = ds.from_numpy(a, away[0])
        back = ds.place(ds.place(x, away[1]), away[0])
        assert ds.device_of(back) is away[0]
        assert bits(ds.to_numpy(back)) == bits(a)

    @feature("place")
    @pytest.mark.parametrize("value", [3, 2.5, None, "text", True, b"bytes"], ids=repr)
    def test_place_passes_other_leaves_through(self, device: Device, value: object) -> None:
        """Values in a tree that need no move are returned unchanged."""
        tree = [value]
        assert ds.place(tree, device) is tree
        assert ds.copy(tree, device) is tree

    @feature("place")
    @pytest.mark.parametrize("value", [3, "text", None, [1.0], {}, object], ids=repr)
    def test_device_of_requires_a_tensor(self, value: object) -> None:
        """`device_of` and `to_numpy` raise for a value that is not a tensor, with the name of its type."""
        for call in (ds.device_of, ds.to_numpy):
            with pytest.raises(ds.NotATensorError, match=type(value).__name__):
                call(value)

    @feature("place")
    def test_computed_tensors_have_a_device(self, device: Device) -> None:
        """`device_of` returns the device of a result of the framework's own operator."""
        x = self.tensor(device, (2, 2))
        assert ds.device_of(ds.run(self.matmul, x, x)) is device

    @feature("non_blocking")
    def test_non_blocking_copies_are_complete_after_synchronize(self, away: tuple[Device, Device]) -> None:
        """``non_blocking=True`` gives the right values after `synchronize`; a move to the host has always finished."""
        a = sample("float32", (300, 301))
        y = ds.place(ds.from_numpy(a, away[0]), away[1], non_blocking=True)
        if away[1].kind != "cpu":
            ds.synchronize(away[1])
        assert bits(ds.to_numpy(y)) == bits(a)
