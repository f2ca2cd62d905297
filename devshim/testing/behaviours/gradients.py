"""Tests of gradients: they flow through `place` and `copy`, which keep the flag that requests a gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import devshim as ds
from devshim.testing.base import Kit
from devshim.testing.values import feature, hook, numbers

if TYPE_CHECKING:
    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device


class GradientTests(Kit):
    """Differentiation across devices."""

    @feature("gradient")
    @pytest.mark.parametrize("call", ["place", "copy", "non_blocking", "tree", "asarray", "there_and_back"])
    def test_the_gradient_flows(self, journey: tuple[Device, Device], call: str) -> None:
        """The gradient of a result on the target arrives at the source, with the right values."""
        source, target = journey

        def move(x: Tensor) -> Tensor:
            if call == "there_and_back":
                return ds.place(ds.copy(x, target), source)
            y = {
                "place": lambda: ds.place(x, target),
                "copy": lambda: ds.copy(x, target),
                "non_blocking": lambda: ds.place(x, target, non_blocking=True),
                "tree": lambda: ds.place({"x": [x]}, target)["x"][0],
                "asarray": lambda: ds.asarray(x, device=target),
            }[call]()
            assert ds.device_of(y) is target
            return y

        x = self.tensor(source)
        found = self.gradient(move, x)
        assert found is not None, "no gradient arrived"
        assert self.same_numbers(found, 2 * numbers())

    @feature("gradient", "guard")
    @pytest.mark.parametrize("call", ["place", "copy"])
    def test_gradients_of_explicit_copies_pass_the_guard(self, journey: tuple[Device, Device], call: str) -> None:
        """An explicit copy brings its gradient back, and a guard does not report that as an implicit transfer."""
        move = ds.place if call == "place" else ds.copy
        x = self.tensor(journey[0])
        with ds.guard("error"):
            found = self.gradient(lambda x: move(x, journey[1]), x)
        assert found is not None, "no gradient arrived"
        assert self.same_numbers(found, 2 * numbers())

    @feature("gradient")
    def test_the_gradient_flows_through_a_view(self, journey: tuple[Device, Device]) -> None:
        """Only the copied part of a tensor has a gradient."""
        found = self.gradient(lambda x: ds.copy(self.part(x, slice(1, None)), journey[1]), self.tensor(journey[0]))
        expected = 2 * numbers()
        expected[0] = 0
        assert self.same_numbers(found, expected)

    @feature("gradient")
    @hook("trainable")
    @pytest.mark.parametrize("call", ["place", "copy"])
    def test_the_gradient_flag_is_kept(self, journey: tuple[Device, Device], call: str) -> None:
        """A tensor that requires a gradient still does after the move; a tensor that does not still does not."""
        move = ds.place if call == "place" else ds.copy
        plain = self.tensor(journey[0])
        assert not self.is_trainable(move(plain, journey[1]))
        x = self.trainable(plain)
        assert self.is_trainable(move(x, journey[1]))
        with ds.transfers():
            assert self.is_trainable(move(x, journey[1]))
            assert not self.is_trainable(move(self.tensor(journey[0]), journey[1]))
        assert self.is_trainable(x)
