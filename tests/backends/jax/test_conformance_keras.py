"""The conformance kit's tests of models on Keras 3 with its JAX backend."""

from __future__ import annotations

from typing import Any

import pytest
from keras_kit import KerasModels, filtered, keras_on

import devshim as ds
from devshim.testing.behaviours.checkpoints import CheckpointTests
from devshim.testing.behaviours.model_gradients import ModelGradientTests
from devshim.testing.behaviours.models import ModelTests
from devshim.testing.behaviours.training import TrainingTests

keras_on("jax")

pytestmark = filtered()


class TestKerasOnJax(KerasModels, ModelTests, ModelGradientTests, TrainingTests, CheckpointTests):
    backend = "jax"

    def compiled(self, fn: Any) -> Any:
        import jax

        return jax.jit(fn)

    def train_step(self, model: Any, optimizer: Any, x: Any, y: Any, between: Any) -> None:
        import jax
        import keras

        there = ds.device_of(model.variables[0].value)
        x, y = ds.place(x, there), ds.place(y, there)

        def loss(weights: Any, states: Any) -> Any:
            y_hat, states = model.stateless_call(weights, states, x, training=True)
            return optimizer.scale_loss(((y_hat - y) ** 2).mean()), states

        weights = [variable.value for variable in model.trainable_variables]
        states = [variable.value for variable in model.non_trainable_variables]
        gradients, states = jax.grad(loss, has_aux=True)(weights, states)
        for variable, state in zip(model.non_trainable_variables, states, strict=True):
            variable.assign(state)
        between()
        if not isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
            optimizer.apply(gradients, model.trainable_variables)
            return
        # `apply` of Keras works only on compiled JAX: Keras (3.15.1) leaks tracers out of a `jax.lax.cond`.
        gradients = ds.place(gradients, ds.device_of(model.variables[0].value))
        held = [variable.value for variable in (*model.trainable_variables, *optimizer.variables)]
        made = optimizer.stateless_apply(held[len(gradients) :], gradients, held[: len(gradients)])
        for variable, value in zip(
            (*model.trainable_variables, *optimizer.variables), [*made[0], *made[1]], strict=True
        ):
            variable.assign(value)

    def test_a_split_model_trains(self, away: tuple[ds.Device, ds.Device]) -> None:
        """Keras on JAX computes on one device: a model over two is refused, and stays where it was."""
        model = self.model()
        home = ds.placement_of(model)
        with pytest.raises(ds.UnsupportedError, match="computes on one device"):
            ds.place(model, ds.Placement({"dense": away[0]}, default=away[1]))
        assert ds.placement_of(model) == home

    @pytest.mark.parametrize("begun", [False, True])
    def test_a_balanced_placement_of_a_model_fits_its_optimizer(
        self, away: tuple[ds.Device, ds.Device], begun: bool
    ) -> None:
        """A plan over two devices is refused, too; one over a single device also places the optimizer."""
        model = self.model()
        optimizer = self.optimizer(model)
        if begun:
            self.train_step(model, optimizer, *self.data(), lambda: None)
        with pytest.raises(ds.UnsupportedError, match="computes on one device"):
            ds.place([model, optimizer], ds.Placement.balanced(model, list(away)))
        ds.place([model, optimizer], ds.Placement.balanced(model, [away[1]]))
        self.check_on(model, away[1])
        self.check_on(optimizer, away[1])

    def test_gradients_of_a_split_model(self, away: tuple[ds.Device, ds.Device]) -> None:
        """A model of Keras on JAX cannot be split: `test_a_split_model_trains` says how that is refused."""
        self.test_a_split_model_trains(away)
