"""The conformance kit on TensorFlow."""

from __future__ import annotations

from typing import Any

import devshim as ds
from devshim.testing import Conformance


class TestTensorflow(Conformance):
    backend = "tensorflow"

    def gradient(self, fn: Any, x: Any) -> Any:
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(x)
            y = fn(x)
            loss = tf.reduce_sum(y * y)
        return tape.gradient(loss, x)

    def memory_of(self, x: Any) -> tuple[int, int]:
        import tensorflow as tf

        from devshim import _dlpack

        return _dlpack.read(tf.experimental.dlpack.to_dlpack(x)).address, self.adapter.nbytes(x)

    def compiled(self, fn: Any) -> Any:
        import tensorflow as tf

        return tf.function(fn)

    def native_zeros(self) -> Any:
        import tensorflow as tf

        return tf.zeros((2, 2))

    def model(self) -> Any:
        import keras

        return keras.layers.Dense(2)

    def train(self, device: Any, inputs: Any, labels: Any) -> Any:
        import keras
        import tensorflow as tf

        layers = keras.layers
        images = inputs.transpose(0, 2, 3, 1)  # TensorFlow's convolutions on the CPU have their channels last
        with ds.on(device):
            keras.utils.set_random_seed(0)
            model = keras.Sequential(
                [
                    layers.Conv2D(4, 3, activation="relu"),
                    layers.BatchNormalization(),
                    layers.Flatten(),
                    layers.Dropout(0.5, seed=1),
                    layers.Dense(4),
                ]
            )
            optimizer = keras.optimizers.Adam(0.01)
            criterion = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            x, y = ds.from_numpy(images, device), ds.from_numpy(labels, device)
            for _ in range(3):
                with tf.GradientTape() as tape:
                    loss = criterion(y, model(x, training=True))
                optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        for variable in (*model.weights, *optimizer.variables):
            assert ds.device_of(variable) is device, variable.path
        return model.get_weights()

    def global_state(self) -> object:
        import tensorflow as tf

        policies = tf.config.get_soft_device_placement(), tf.config.experimental.get_device_policy()
        return policies, tf.config.functions_run_eagerly(), tf.keras.config.floatx()
