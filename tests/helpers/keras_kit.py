"""The hooks of the conformance kit for Keras models and optimizers, the same on each of its backends."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

import pytest

import devshim as ds


def keras_on(name: str) -> None:
    """Make Keras compute with a framework in this process, or skip the module that requests it.

    Keras has one backend for a process: TensorFlow if it is installed, unless ``KERAS_BACKEND`` names another.
    """
    if find_spec(name) is None or find_spec("keras") is None:
        pytest.skip(f"{name} and keras are not both installed", allow_module_level=True)
    default = "tensorflow" if find_spec("tensorflow") is not None else name
    if os.environ.setdefault("KERAS_BACKEND", default) != name:
        pytest.skip(f"Keras computes with {os.environ['KERAS_BACKEND']} in this process", allow_module_level=True)


def filtered() -> pytest.MarkDecorator:
    """Ignore the warning that ``__array__`` of Keras variables (3.15.1) does not take NumPy 2's ``copy``."""
    return pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")


class KerasModels:
    """The kit's hooks for models. Keras is imported when a model is requested, on the backend of ``KERAS_BACKEND``.

    Models are made on the host: without a scope, some frameworks make them on the first GPU.
    """

    def model(self) -> Any:
        import keras

        layers = keras.layers
        first = keras.initializers.GlorotUniform(1), keras.initializers.GlorotUniform(2)
        with ds.on("cpu"):
            model = keras.Sequential(
                [
                    layers.Dense(8, use_bias=False, kernel_initializer=first[0]),
                    layers.BatchNormalization(),
                    layers.ReLU(),
                    layers.Dense(3, kernel_initializer=first[1]),
                ]
            )
            model.build((None, 4))
        return model

    def unbuilt_model(self) -> Any:
        import keras

        layers = keras.layers
        with ds.on("cpu"):
            return keras.Sequential([layers.Dense(8), layers.BatchNormalization(), layers.ReLU(), layers.Dense(3)])

    def tied_model(self) -> Any:
        import keras

        with ds.on("cpu"):
            shared = keras.layers.Dense(4)
            model = keras.Sequential([keras.Sequential([shared]), keras.layers.ReLU(), keras.Sequential([shared])])
            model.build((None, 4))
        return model

    def optimizer(self, model: Any) -> Any:
        import keras

        return beside(model, lambda: keras.optimizers.Adam(0.05))

    def optimizers(self) -> dict[str, Any]:
        """Return every class in keras.optimizers, with the options that add variables."""
        import keras

        made: dict[str, Any] = {}
        shipped = {name: cls for name, cls in vars(keras.optimizers).items() if isinstance(cls, type)}
        for name, cls in shipped.items():
            if name not in ("Optimizer", "LossScaleOptimizer", "MultiOptimizer", "OptimizerMap"):
                made[name] = lambda model, cls=cls: beside(model, lambda: cls(learning_rate=0.05))
        optimizers = keras.optimizers
        forms: dict[str, Any] = {
            "SGD-nesterov": lambda: optimizers.SGD(0.05, momentum=0.9, nesterov=True),
            "RMSprop-centered": lambda: optimizers.RMSprop(0.05, momentum=0.9, centered=True),
            "Adam-full": lambda: optimizers.Adam(
                0.05, amsgrad=True, use_ema=True, ema_overwrite_frequency=2, global_clipnorm=0.1, weight_decay=0.01
            ),
            "Adam-accumulating": lambda: optimizers.Adam(
                optimizers.schedules.CosineDecay(0.05, 4), gradient_accumulation_steps=2
            ),
            "LossScaleOptimizer": lambda: optimizers.LossScaleOptimizer(optimizers.Adam(0.05), dynamic_growth_steps=2),
        }
        if "MultiOptimizer" in shipped:  # Keras 3.15 and newer
            forms["MultiOptimizer"] = lambda: optimizers.MultiOptimizer(
                optimizers.OptimizerMap(optimizers.Adam(0.05), {".*kernel": optimizers.SGD(0.05, momentum=0.9)})
            )
        return {**made, **{name: lambda model, make=make: beside(model, make) for name, make in forms.items()}}


def beside(model: Any, make: Any) -> Any:
    """Return an optimizer made and built on a model's device."""
    with ds.on(next(iter(dict(ds.placement_of(model).items()).values()))):
        optimizer = make()
        optimizer.build(model.trainable_variables)
    return optimizer
