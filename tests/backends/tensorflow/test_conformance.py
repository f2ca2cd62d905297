"""The conformance kit on TensorFlow."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar

import numpy as np
from keras_kit import KerasModels

import devshim as ds
from devshim.testing import Conformance
from devshim.testing.behaviours.compiled_calls import DRAWN, EFFECTS, MADE_ON_A_DEVICE
from devshim.testing.behaviours.native_names import NativeGpus

_GPU = "/job:localhost/replica:0/task:0/device:GPU:{}"


class TestTensorflow(KerasModels, Conformance):
    backend = "tensorflow"

    def native_gpus(self) -> NativeGpus:
        import tensorflow as tf

        def ones(index: int) -> Any:
            with tf.device(f"/GPU:{index}"):
                return tf.ones((3, 4))

        def moved(x: Any, index: int) -> Any:
            with tf.device(f"/GPU:{index}"):
                return tf.identity(x)

        return NativeGpus(
            count=lambda: len(tf.config.list_logical_devices("GPU")),
            ones=ones,
            moved=moved,
            name=lambda x: str(x.device),
            names=(_GPU.format(0), _GPU.format(1)),
            packages=("tensorflow",),
            computes_on=lambda index: 0,
            failure=tf.errors.InternalError,
        )

    def mixing_error(self) -> Any:
        return ds.framework("tensorflow").errors.InvalidArgumentError

    def gradient(self, fn: Any, x: Any) -> Any:
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(x)
            y = fn(x)
        with self.scope_of(ds.device_of(y)):
            with tf.GradientTape() as last:
                last.watch(y)
                loss = tf.reduce_sum(y * y)
            slope = last.gradient(loss, y)
        return tape.gradient(y, x, output_gradients=slope)

    def memory_of(self, x: Any) -> tuple[int, int]:
        import tensorflow as tf

        from devshim.transfers import dlpack

        return dlpack.read(tf.experimental.dlpack.to_dlpack(x)).address, self.adapter.nbytes(x)

    def compiled(self, fn: Any) -> Any:
        import tensorflow as tf

        return tf.function(fn)

    _located = ("convert", "copy", "device_of", "placement_of", "require_same_device", "same_device")
    _located = (*_located, "all_reduce_", "data_parallel", "gather", "parallel", "shrink_batch", *EFFECTS)
    _of_xla = ("Device as a scope", "asarray", "broadcast", "on", "place", "split", *MADE_ON_A_DEVICE, *DRAWN)
    compiler_refuses: ClassVar[Any] = {
        "function": {*_located, "load", "random.Generator.normal", "random.permutation"},
        "xla": {*_located, *_of_xla},
    }

    def compilers(self) -> Any:
        import tensorflow as tf

        def xla(fn: Any) -> Any:
            return tf.function(fn, jit_compile=True)

        return {"function": (self.compiled, True), "xla": (xla, True)}

    def containers(self, x: Any) -> Any:
        import keras
        import tensorflow as tf

        keyed = tf.train.Checkpoint(d={"x": x, "n": 1}, l=[x, 1])  # TensorFlow wraps its attributes
        with tf.device(x.device):
            extension = _extension()(x, 3)
        return {
            "extension": (extension, lambda t: t.x),
            "protocol": (_protocol()(x, 3), lambda t: t.x),
            "keras": (_of_keras()(x, 3), lambda t: t.x),
            "wrapped dict": (keyed.d, lambda t: t["x"]),
            "wrapped list": (keyed.l, lambda t: t[0]),
            "tracked list": (keras.src.utils.tracking.TrackedList([x, 1]), lambda t: t[0]),
        }

    def native_zeros(self) -> Any:
        import tensorflow as tf

        return tf.zeros((2, 2))

    def loaders(self, values: np.ndarray) -> dict[str, Any]:
        import tensorflow as tf

        with tf.device("/CPU:0"):
            rows = tf.data.Dataset.from_tensor_slices(values)
        pairs = tf.data.Dataset.zip((rows, rows))
        return {"batches": rows.batch(3), "ahead": rows.batch(3).prefetch(2), "pairs": pairs.batch(4)}

    def train_step(self, model: Any, optimizer: Any, x: Any, y: Any, between: Any) -> None:
        import tensorflow as tf

        with tf.GradientTape() as tape:
            y_hat = model(ds.place(x, ds.device_of(model.variables[0])), training=True)
            loss = tf.reduce_mean((y_hat - ds.place(y, ds.device_of(y_hat))) ** 2)
            loss = optimizer.scale_loss(loss)
        gradients = tape.gradient(loss, model.trainable_variables)
        between()
        optimizer.apply(gradients, model.trainable_variables)

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


@functools.cache
def _extension() -> Any:
    """Return a class that TensorFlow treats as a tensor of several."""
    import tensorflow as tf

    base: Any = tf.experimental.ExtensionType
    fields = {"x": tf.Tensor, "n": int}  # as annotations in this file they would be text
    return type(base)("Extension", (base,), {"__annotations__": fields, "__module__": __name__})


@functools.cache
def _protocol() -> Any:
    """Return a dataclass that defines its traversal by `tf.nest`."""

    @dataclasses.dataclass
    class Protocol:
        x: Any
        n: int

        def __tf_flatten__(self) -> Any:
            return (self.n,), (self.x,)

        @classmethod
        def __tf_unflatten__(cls, metadata: Any, components: Any) -> Any:
            return cls(components[0], metadata[0])

    return Protocol


@functools.cache
def _of_keras() -> Any:
    """Return a class registered with Keras' trees, which are optree's."""
    import optree

    class OfKeras:
        def __init__(self, x: Any, n: int) -> None:
            self.x, self.n = x, n

    optree.register_pytree_node(
        OfKeras, lambda node: ((node.x,), node.n), lambda n, xs: OfKeras(*xs, n), namespace="keras"
    )
    return OfKeras
