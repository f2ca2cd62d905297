"""Tests of `value_and_grad` with models as arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.testing.base import Kit
from devshim.testing.values import feature, hook

if TYPE_CHECKING:
    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device

INPUTS = np.linspace(-1, 1, 24, dtype=np.float32).reshape(6, 4)


class ModelGradientTests(Kit):
    """A model as argument: gradients by the key paths of its trainable parameters."""

    def first(self, model: Any, x: Tensor) -> Tensor:
        """Return the first number of a model's results, of shape (1, 1)."""
        return ds.run(lambda y: y[0:1, 0:1], self.forward(model, x))

    def number_in(self, x: Tensor) -> Tensor:
        """Return the number in a tensor of shape (1, 1)."""
        return ds.run(lambda x: x[0, 0], x)

    def trained(self, model: Any) -> dict[str, Any]:
        """Return the trainable leaves of a model by path."""
        return {leaf.path: leaf for leaf in self.adapter.trainable(model)}

    def state(self, model: Any) -> dict[str, np.ndarray]:
        """Return the parameters and stored gradients of a model."""
        return {
            leaf.path: ds.to_numpy(leaf.read())
            for leaf in [*self.adapter.trainable(model), *self.adapter.leaves(model)]
            if leaf.kind == "gradient" or leaf.path in self.trained(model)
        }

    @feature("value_and_grad", "models")
    @hook("model")
    def test_gradients_of_a_model_come_by_key_path(self, device: Device) -> None:
        """Every trainable parameter has a gradient on its device; the last bias's is computed by hand."""
        model = ds.place(self.model(), device)
        before, x = self.state(model), ds.from_numpy(INPUTS, device)
        for _ in range(2):
            value, grads = ds.value_and_grad(lambda m, x: self.number_in(self.first(m, x)))(model, x)
            trained = self.trained(model)
            assert list(grads) == list(trained)
            assert set(grads) <= set(dict(ds.placement_of(model).items()))
            for path, grad in grads.items():
                assert ds.device_of(grad) is device
                assert self.adapter.shape(grad) == self.adapter.shape(trained[path].read())
            bias = [path for path in grads if self.adapter.shape(grads[path]) == (3,)][-1]
            assert np.allclose(ds.to_numpy(grads[bias]), [1, 0, 0])
            assert any(ds.to_numpy(grad).any() for path, grad in grads.items() if path != bias)
        after = self.state(model)
        assert list(after) == list(before)
        assert all((after[path] == before[path]).all() for path in before), "parameters or stored gradients changed"
        assert np.isfinite(ds.to_numpy(value)).all()

    @feature("value_and_grad", "models")
    @hook("model")
    def test_a_model_among_other_arguments(self, device: Device) -> None:
        """A model can be part of a tree, next to other differentiated arguments."""
        model = ds.place(self.model(), device)
        x = ds.from_numpy(INPUTS, device)
        scale = ds.run(lambda y: y * 0 + 2, self.first(model, x))

        def fn(tree: Any, x: Tensor) -> Tensor:
            return ds.run(lambda y, s: (y * s)[0, 0], self.first(tree["net"], x), tree["scale"])

        value, (grads, of_x) = ds.value_and_grad(fn, (0, 1))({"net": model, "scale": scale}, x)
        bias = [path for path in grads["net"] if self.adapter.shape(grads["net"][path]) == (3,)][-1]
        assert np.allclose(ds.to_numpy(grads["net"][bias]), [2, 0, 0])
        assert np.allclose(2 * ds.to_numpy(grads["scale"]), ds.to_numpy(value), rtol=1e-4)
        assert self.adapter.shape(of_x) == (6, 4)
        assert ds.device_of(of_x) is device

    @feature("value_and_grad", "models")
    @hook("model", "optimizer")
    def test_gradients_of_a_split_model(self, away: tuple[Device, Device]) -> None:
        """A model on two devices has its gradients there, with the numbers of the CPU."""
        expected = ds.value_and_grad(lambda m: self.number_in(self.first(m, ds.from_numpy(INPUTS))))(self.model())[1]
        model = self.model()
        paths = list(dict(ds.placement_of(model).items()))
        first = paths[0].rpartition(".")[0] or paths[0].rpartition("/")[0]
        placement = ds.Placement({path: away[0] if path.startswith(first) else away[1] for path in paths})
        ds.place(model, placement)
        x = ds.from_numpy(INPUTS, away[0])
        _, grads = ds.value_and_grad(lambda m: self.number_in(self.first(m, x)))(model)
        assert list(grads) == list(expected)
        for path, grad in grads.items():
            assert ds.device_of(grad) is placement[path]
            assert np.allclose(ds.to_numpy(grad), ds.to_numpy(expected[path]), rtol=1e-3, atol=1e-4), path

    @feature("trace_gradient_models", "trace_gradient", "value_and_grad", "models")
    @hook("model")
    def test_compiled_gradients_of_a_model(self, device: Device) -> None:
        """`value_and_grad` of a model inside a compiled function gives the numbers that it gives outside."""
        model = ds.place(self.model(), device)
        x = ds.from_numpy(INPUTS, device)
        step = ds.value_and_grad(lambda m, x: self.forward(m, x)[0, 0])
        value, grads = step(model, x)
        found, compiled = self.compiled(lambda x: step(model, x))(x)
        assert np.allclose(ds.to_numpy(found), ds.to_numpy(value), rtol=1e-4)
        assert set(compiled) == set(grads)  # jax.jit sorts the keys of a dict
        for path, grad in grads.items():
            assert ds.device_of(compiled[path]) is device
            assert np.allclose(ds.to_numpy(compiled[path]), ds.to_numpy(grad), rtol=1e-3, atol=1e-4), path

    @feature("value_and_grad", "models")
    @hook("tied_model")
    def test_tied_parameters_have_one_gradient(self) -> None:
        """A parameter with two names occurs once, under its first name."""
        model = self.tied_model()
        owners = [id(leaf.owner) for leaf in self.adapter.trainable(model)]
        assert len(set(owners)) < len(owners)

        def fn(model: Any) -> Tensor:
            return self.number_in(self.first(model, ds.from_numpy(INPUTS)))

        _, grads = ds.value_and_grad(fn)(model)
        assert len(grads) == len(set(owners))
        assert all(any(leaf.path == path for leaf in self.adapter.trainable(model)) for path in grads)

    @feature("value_and_grad", "models")
    @hook("model")
    def test_an_error_leaves_the_model_as_it_was(self) -> None:
        """After an error of the function, the model has its values and computes."""
        model = self.model()
        before = self.state(model)

        def failing(model: Any) -> Any:
            self.first(model, ds.from_numpy(INPUTS))
            msg = "on purpose"
            raise KeyError(msg)

        with pytest.raises(KeyError, match="on purpose"):
            ds.value_and_grad(failing)(model)
        after = self.state(model)
        assert all((after[path] == before[path]).all() for path in before)
        assert np.isfinite(ds.to_numpy(self.forward(model, ds.from_numpy(INPUTS)))).all()
