"""Tests of `stop_gradient`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import devshim as ds
from devshim.testing.base import Kit
from devshim.testing.values import feature

if TYPE_CHECKING:
    from devshim.devices.device import Device


class StopGradientTests(Kit):
    """The same values, through which no gradient flows."""

    def test_stop_gradient_keeps_the_values(self, device: Device) -> None:
        """The values, dtype and device stay, in a tree too; what has no tensors is refused."""
        x = self.tensor(device)
        y = ds.stop_gradient(x)
        assert self.alike(x, y)
        assert ds.device_of(y) is device
        assert self.same_numbers(y, ds.to_numpy(x))
        tree = ds.stop_gradient({"a": [x, "text"], "n": ds.asarray([1, 2], dtype="int32", device=device)})
        assert self.same_numbers(tree["a"][0], ds.to_numpy(x))
        assert tree["a"][1] == "text"
        assert ds.device_of(tree["n"]) is device
        with pytest.raises(ds.NotATensorError):
            ds.stop_gradient(3)

    @feature("value_and_grad")
    def test_stop_gradient_stops_gradients(self, device: Device) -> None:
        """No gradient flows through the result."""
        x = ds.from_numpy(np.full((1, 1), 3, np.float32), device)
        _, grad = ds.value_and_grad(lambda t: (t * ds.stop_gradient(t))[0, 0])(x)
        assert self.same_numbers(grad, [[3.0]])
        _, grad = ds.value_and_grad(lambda t: (t * ds.stop_gradient([t * t])[0])[0, 0])(x)
        assert self.same_numbers(grad, [[9.0]])
