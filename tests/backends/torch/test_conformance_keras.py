"""The conformance kit's tests of models on Keras 3 with its PyTorch backend."""

from __future__ import annotations

from typing import Any

from keras_kit import KerasModels, filtered, keras_on

import devshim as ds
from devshim.testing.behaviours.checkpoints import CheckpointTests
from devshim.testing.behaviours.model_gradients import ModelGradientTests
from devshim.testing.behaviours.models import ModelTests
from devshim.testing.behaviours.training import TrainingTests

keras_on("torch")

pytestmark = filtered()


class TestKerasOnTorch(KerasModels, ModelTests, ModelGradientTests, TrainingTests, CheckpointTests):
    backend = "torch"

    def train_step(self, model: Any, optimizer: Any, x: Any, y: Any, between: Any) -> None:
        import torch

        model.zero_grad()
        y_hat = model(ds.place(x, ds.device_of(model.variables[0].value)), training=True)
        loss = optimizer.scale_loss(torch.mean((y_hat - ds.place(y, ds.device_of(y_hat))) ** 2))
        loss.backward()
        between()
        gradients = [variable.value.grad for variable in model.trainable_variables]
        with torch.no_grad():
            optimizer.apply(gradients, model.trainable_variables)
