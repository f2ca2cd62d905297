"""Tests of `data_parallel` with models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.testing.behaviours.data_parallel import PartsKit
from devshim.testing.values import feature, hook

if TYPE_CHECKING:
    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device


def _first(y: Tensor) -> Tensor:
    """Return the first number of a tensor, of shape (1, 1)."""
    return y[0:1, 0:1]


class DataParallelModelTests(PartsKit):
    """One model over several devices: its results and gradients are those of one device."""

    def model_input(self, x: Tensor) -> Tensor:
        """Return a tensor as the model of the hook `model` takes it; override for a framework with two interfaces."""
        return x

    @feature("data_parallel_models", "models", "value_and_grad")
    @hook("model")
    @pytest.mark.parametrize("home", ["first", "second", "elsewhere"])
    def test_a_model_computes_on_all_devices_with_gradients(self, away: tuple[Device, Device], home: str) -> None:
        """The results are those of each part, on the model's device, and gradients reach the model's parameters."""
        x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(6, 4)
        model, alone = self.model(), self.model()
        at = {"first": away[0], "second": away[1], "elsewhere": ds.cpu()}[home]
        ds.place(model, at)

        def both(net: Any, inputs: list[Tensor]) -> Tensor:
            pieces = [ds.run(_first, self.forward(net, part)) for part in inputs]
            return ds.run(lambda both: (both[0] + both[1])[0, 0], pieces)

        expected_value, expected = ds.value_and_grad(both)(alone, [ds.from_numpy(x[:3]), ds.from_numpy(x[3:])])

        def loss(net: Any) -> Tensor:
            y = ds.data_parallel(net, list(away))(self.model_input(ds.from_numpy(x)))
            assert ds.device_of(y) is at
            assert self.adapter.shape(y) == (6, 3)
            return ds.run(lambda y: (y[0:1, 0:1] + y[3:4, 0:1])[0, 0], y)

        for _ in range(2):
            value, grads = ds.value_and_grad(loss)(model)
            assert self.nearly(value, ds.to_numpy(expected_value))
            assert list(grads) == list(expected)
            for path, grad in grads.items():
                assert ds.device_of(grad) is at
                assert np.allclose(ds.to_numpy(grad), ds.to_numpy(expected[path]), rtol=1e-3, atol=1e-4), path

    @feature("models")
    @hook("model")
    def test_models_that_cannot_be_linked_are_refused(self) -> None:
        """If replicas cannot be linked to the model, the call raises before anything runs."""
        gap = self.adapter.gaps.get("data_parallel_models")
        if gap is None:
            return
        with pytest.raises(ds.UnsupportedError) as caught:
            ds.data_parallel(self.model(), ["cpu"])
        assert gap.reason in caught.value.problem

    @feature("data_parallel", "models", "value_and_grad")
    @hook("model")
    def test_models_among_the_params(self, places: list[Device]) -> None:
        """Each device gets a replica, and the reduced gradients are on the model's device."""
        model = ds.place(self.model(), places[0])
        x = ds.from_numpy(np.linspace(-1, 1, 24, dtype=np.float32).reshape(6, 4))

        def loss(net: Any, part: Tensor) -> Tensor:
            return ds.run(lambda y: y[0, 0], self.forward(net, part))

        _, grads = ds.data_parallel(ds.value_and_grad(loss), places)(model, x)
        bias = [path for path in grads if self.adapter.shape(grads[path]) == (3,)][-1]
        assert self.nearly(grads[bias], [1, 0, 0])
        assert all(ds.device_of(grad) is places[0] for grad in grads.values())
