"""Tests of `copy`: it always returns new memory, which the tests prove by writing to both sides."""

from __future__ import annotations

import copy as python_copy
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.testing.base import Kit
from devshim.testing.values import DTYPES, at_offset, bits, feature, numbers, sample

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.devices.device import Device

COPIES: dict[str, Callable[[Any, Device], list[Any]]] = {
    "copy": lambda x, device: [ds.copy(x, device)],
    "tree": lambda x, device: list(ds.copy({"x": x}, device).values()),
    "asarray": lambda x, device: [ds.asarray(x, device=device, copy=True)],
    "split": lambda x, device: ds.split(x, [device, device]),
    "broadcast": lambda x, device: ds.broadcast(x, [device, device]),
    "gather": lambda x, device: [ds.gather([x, x], device)],
}
"""Calls that copy a tensor to a device, and return the copies."""
COLLECTIVE = ("split", "gather")
"""The calls among them that need the feature of this name."""


class CopyTests(Kit):
    """Independence of a copy from its source."""

    @feature("copy")
    @pytest.mark.parametrize("spelled", ["copy", "place"])
    @pytest.mark.parametrize("part", ["whole", "view"])
    def test_writing_to_a_copy_does_not_change_the_original(
        self, journey: tuple[Device, Device], spelled: str, part: str
    ) -> None:
        """Overwriting the source leaves the copy unchanged, and the other way round."""
        source, target = journey
        for first in ("source", "copy"):
            base = self.tensor(source)
            x, a = (base, numbers()) if part == "whole" else (self.part(base, slice(1, None)), numbers()[1:])
            y = ds.copy(x, target) if spelled == "copy" else ds.place(x, target, copy=True)
            assert y is not x
            assert ds.device_of(y) is target
            written, kept = (x, y) if first == "source" else (y, x)
            if self.can_scribble(ds.device_of(written)):
                self.scribble(written)
                assert not self.same_numbers(written, a), "the kit could not write: the proof proves nothing"
            assert self.same_numbers(kept, a)

    @feature("copy")
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_a_copy_has_the_same_bits(self, journey: tuple[Device, Device], dtype: str) -> None:
        """A copy has the dtype, shape and every bit of its source, and the source is unchanged."""
        a = sample(dtype)
        x = ds.from_numpy(a, journey[0])
        y = ds.copy(x, journey[1])
        assert self.alike(x, y)
        assert self.adapter.dtype_name(y) == dtype
        assert bits(ds.to_numpy(y)) == bits(a) == bits(ds.to_numpy(x))

    @feature("copy")
    @pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (2, 3, 4)], ids=str)
    def test_any_shape_is_copied(self, journey: tuple[Device, Device], shape: tuple[int, ...]) -> None:
        """Scalars and tensors without elements are copied like any other tensor."""
        a = sample(shape=shape)
        x = ds.from_numpy(a, journey[0])
        y = ds.copy(x, journey[1])
        assert y is not x
        assert ds.device_of(y) is journey[1]
        assert bits(ds.to_numpy(y)) == bits(a)

    @feature("copy")
    @pytest.mark.parametrize("call", [python_copy.copy, python_copy.deepcopy])
    def test_pythons_copies_stay_on_the_device(self, device: Device, call: Callable[[Any], Any]) -> None:
        """A program keeps its best weights with `copy.deepcopy`, for example."""
        x = self.tensor(device)
        found = [call(x), python_copy.deepcopy({"x": (x,)})["x"][0]]
        assert [ds.device_of(each) for each in found] == [device, device]
        assert [bits(ds.to_numpy(each)) for each in found] == [bits(ds.to_numpy(x))] * 2

    @feature("copy")
    def test_copies_of_copies_are_independent(self, device: Device) -> None:
        """Each copy has its own memory."""
        xs = [self.tensor(device)]
        for _ in range(3):
            xs.append(ds.copy(xs[-1], device))
        if self.can_scribble(device):
            self.scribble(xs[1])
            assert not self.same_numbers(xs[1], numbers())
        for i in (0, 2, 3):
            assert self.same_numbers(xs[i], numbers())

    @feature("copy")
    @pytest.mark.parametrize("part", ["whole", "view"])
    def test_a_copy_under_a_ledger_is_equal(self, journey: tuple[Device, Device], part: str) -> None:
        """A copy through the fast path, without a ledger, equals one that a ledger records.

        Neither writes to its source.
        """
        source, target = journey
        base = self.tensor(source)
        x = base if part == "whole" else self.part(base, slice(1, None))
        unseen = ds.copy(x, target)
        with ds.transfers() as log:
            seen = ds.copy(x, target)
        assert (log.count, log.total_bytes) == (1, self.adapter.nbytes(x))
        for y in (unseen, seen):
            assert type(y) is type(seen)
            assert ds.device_of(y) is target
            assert self.alike(x, y)
            assert self.adapter.is_writable(y) == self.adapter.is_writable(seen)
        if self.can_scribble(target):
            self.scribble(unseen)
            assert self.same_numbers(seen, ds.to_numpy(x))
        assert self.same_numbers(base, numbers())

    @feature("copy", "numpy")
    @pytest.mark.parametrize(
        "call", [pytest.param(call, marks=[feature("several")] if call in COLLECTIVE else []) for call in COPIES]
    )
    def test_numpy_memory_has_been_read_on_return(self, device: Device, call: str) -> None:
        """A tensor that shares a NumPy array's memory is copied before the call returns; later writes do not matter."""
        a = at_offset(np.zeros((2, 1 << 22), "float32"), 0)  # large, so that a copy still running would be detected
        for _ in range(3):
            a[...] = 1
            try:
                x = ds.from_numpy(a, copy=False)
            except ds.CopyNeededError:
                return
            copies = COPIES[call](x, device)
            a[...] = 7
            assert all((ds.to_numpy(y) == 1).all() for y in copies)
