"""The conformance kit on TensorFlow."""

from __future__ import annotations

from typing import Any

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

    def global_state(self) -> object:
        import tensorflow as tf

        policies = tf.config.get_soft_device_placement(), tf.config.experimental.get_device_policy()
        return policies, tf.config.functions_run_eagerly(), tf.keras.config.floatx()
