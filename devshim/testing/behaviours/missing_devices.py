"""Tests of devices that do not exist: every call on every framework refuses them immediately, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.registry import current
from devshim.testing.base import Kit, in_thread
from devshim.testing.values import feature, numbers

if TYPE_CHECKING:
    from devshim.contract.backend import Tensor

CALLS: dict[str, Callable[[Any, Any], object]] = {
    "place": lambda x, d: ds.place(x, d),
    "place_copy": lambda x, d: ds.place(x, d, copy=True),
    "place_copy_false": lambda x, d: ds.place(x, d, copy=False),
    "place_non_blocking": lambda x, d: ds.place(x, d, non_blocking=True),
    "place_tree": lambda x, d: ds.place({"a": [x, 1]}, d),
    "copy": lambda x, d: ds.copy(x, d),
    "from_numpy": lambda x, d: ds.from_numpy(numbers(), d),
    "asarray": lambda x, d: ds.asarray([1, 2], device=d),
    "asarray_tensor": lambda x, d: ds.asarray(x, device=d),
    "asarray_array": lambda x, d: ds.asarray(np.ones(2), device=d),
    "zeros": lambda x, d: ds.zeros(2, device=d),
    "ones": lambda x, d: ds.ones(2, device=d),
    "full": lambda x, d: ds.full(2, 1.5, device=d),
    "empty": lambda x, d: ds.empty(2, device=d),
    "arange": lambda x, d: ds.arange(3, device=d),
    "linspace": lambda x, d: ds.linspace(0, 1, 3, device=d),
    "eye": lambda x, d: ds.eye(2, device=d),
    "zeros_like": lambda x, d: ds.zeros_like(x, device=d),
    "full_like": lambda x, d: ds.full_like(x, 2, device=d),
    "uniform": lambda x, d: ds.random.uniform(size=2, device=d),
    "normal": lambda x, d: ds.random.normal(size=2, device=d),
    "randint": lambda x, d: ds.random.randint(9, size=2, device=d),
    "permutation": lambda x, d: ds.random.permutation(3, device=d),
    "bernoulli": lambda x, d: ds.random.bernoulli(0.5, 2, device=d),
    "Generator": lambda x, d: ds.random.Generator(0, d, portable=True),
    "convert": lambda x, d: ds.convert(x, device=d),
    "on": lambda x, d: ds.on(d).__enter__(),
    "with_device": lambda x, d: ds.device(d).__enter__(),
    "set_device": lambda x, d: ds.set_device(d),
    "require": lambda x, d: ds.require(d),
    "describe": lambda x, d: ds.describe(d),
    "prefetch": lambda x, d: ds.prefetch([x], d),
    "timer": lambda x, d: ds.timer(d).__enter__(),
    "memory": lambda x, d: ds.memory(d),
    "empty_cache": lambda x, d: ds.empty_cache(d),
    "synchronize": lambda x, d: ds.synchronize(d),
}


class MissingDeviceTests(Kit):
    """No silent fallback, and no error at a later call."""

    @feature("missing_device")
    @pytest.mark.parametrize("call", CALLS)
    def test_a_missing_device_is_refused(self, call: str, missing_device: object) -> None:
        """Every call that takes a device raises `DeviceNotFoundError` for one that does not exist."""
        x = self.tensor()
        self.assert_refused(call, x, missing_device)
        assert ds.device_of(x) is ds.cpu()
        assert self.same_numbers(x, numbers())

    @feature("missing_device")
    @pytest.mark.parametrize("spelling", ["cuda:99", "/GPU:99", 99, "tpu:7"])
    def test_a_missing_device_is_refused_in_every_spelling(self, spelling: object) -> None:
        """A missing device is refused in every spelling."""
        for call in ("place", "zeros", "on"):
            self.assert_refused(call, self.tensor(), spelling)

    @feature("missing_device")
    def test_the_leaf_that_cannot_move_is_named(self, missing_device: object) -> None:
        """Of a tree with a placement, and of a tree that goes to one device."""
        tree = {"a": self.tensor(), "b": [self.tensor()]}
        plan = ds.Placement({"b": ds.device(missing_device)}, default="cpu")
        for target, leaf in ((plan, r"\['b'\]\[0\]"), (missing_device, r"\['a'\]")):
            with pytest.raises(ds.DeviceNotFoundError, match=f"at the leaf {leaf} of the tree, which is unchanged"):
                ds.place(tree, target)

    @feature("missing_device")
    def test_a_refused_scope_changes_nothing(self, missing_device: object) -> None:
        """After a refused `on` or `set_device`, the default device is unchanged."""

        def body() -> None:
            before = current.default_device()
            for call in ("on", "with_device", "set_device"):
                self.assert_refused(call, self.tensor(), missing_device)
            assert current.default_device() is before
            assert ds.device_of(ds.zeros(2)) is before

        in_thread(body)

    def assert_refused(self, call: str, x: Tensor, device: object) -> None:
        """Check that a call refuses a device."""
        with pytest.raises(ds.DeviceNotFoundError) as caught:
            CALLS[call](x, device)
        assert str(ds.device(device)) in caught.value.problem
