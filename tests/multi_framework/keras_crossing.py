"""A program that moves Keras models and optimizers between Keras backends: one process saves them, another loads them.

    KERAS_BACKEND=torch python keras_crossing.py save FOLDER
    KERAS_BACKEND=jax python keras_crossing.py load FOLDER FOLDER ...

Each process uses two simulated GPUs, and prints ``crossed`` at its end.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

import devshim as ds

HERE = os.environ["KERAS_BACKEND"]
with ds.using(HERE):
    ds.zeros((1,), device="gpu:1")  # starts the simulated GPUs before Keras starts the framework

import keras  # noqa: E402 - see above
from keras import layers as kl  # noqa: E402

RNG = np.random.default_rng(0)
VECTORS = RNG.standard_normal((8, 6)).astype("f4")
SEQUENCES = RNG.standard_normal((8, 5, 6)).astype("f4")
IMAGES = RNG.standard_normal((4, 8, 8, 3)).astype("f4")
LABELS = RNG.standard_normal((8, 3)).astype("f4")


class Own(keras.Model):
    """A model with its own call, weight and list of layers; built when it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.drop = kl.Dense(8), kl.BatchNormalization(), kl.Dropout(0.3, seed=3)
        self.blocks = [kl.Dense(8) for _ in range(2)]
        self.last = kl.Dense(3)
        self.scale = self.add_weight(shape=(3,), initializer="ones", name="scale")

    def call(self, x: Any, training: bool = False) -> Any:
        x = self.norm(self.first(x), training=training)
        for block in self.blocks:
            x = keras.ops.relu(block(x))
        return self.last(self.drop(x, training=training)) * self.scale


class Shift(kl.Layer):
    """A layer of a class that devshim does not know, with random numbers and a weight that is not trained."""

    def build(self, shape: Any) -> None:
        self.kernel = self.add_weight(shape=(shape[-1], 4), name="kernel")
        self.mean = self.add_weight(shape=(4,), trainable=False, initializer="zeros", name="mean")
        self.seeds = keras.random.SeedGenerator(7)

    def call(self, x: Any) -> Any:
        return keras.ops.matmul(x, self.kernel) + self.mean


def shared() -> Any:
    given = keras.Input((6,))
    again = kl.Dense(8, name="again")
    x = again(kl.Dense(8, activation="relu")(given))
    x = again(x) + x
    return keras.Model(given, kl.Dense(3)(x))


def nested() -> Any:
    inner = keras.Sequential([kl.Dense(8), kl.BatchNormalization()], name="inner")
    return keras.Sequential([keras.Input((6,)), inner, kl.Dropout(0.5), keras.Sequential([kl.Dense(3)])])


def attention() -> Any:
    given = keras.Input((5, 6))
    x = kl.LayerNormalization()(kl.MultiHeadAttention(2, 4)(given, given) + given)
    return keras.Model(given, kl.Dense(3)(kl.GlobalAveragePooling1D()(x)))


def low_rank() -> Any:
    model = keras.Sequential([keras.Input((6,)), kl.Dense(8), kl.Dense(3)])
    model.layers[0].enable_lora(2)
    return model


MODELS: dict[str, tuple[Any, Any]] = {
    "shared": (shared, VECTORS),
    "nested": (nested, VECTORS),
    "own": (Own, VECTORS),
    "unbuilt": (lambda: keras.Sequential([kl.Dense(8), kl.BatchNormalization(), kl.Dense(3)]), VECTORS),
    "recurrent": (
        lambda: keras.Sequential([kl.Bidirectional(kl.LSTM(4, return_sequences=True)), kl.GRU(4, dropout=0.5)]),
        SEQUENCES,
    ),
    "convolutions": (
        lambda: keras.Sequential([kl.Conv2D(4, 3), kl.DepthwiseConv2D(3), kl.Flatten(), kl.Dense(3)]),
        IMAGES,
    ),
    "attention": (attention, SEQUENCES),
    "unknown layer": (lambda: keras.Sequential([Shift(), kl.Dense(3)]), VECTORS),
    "low rank": (low_rank, VECTORS),
    "half": (lambda: keras.Sequential([kl.Dense(8, dtype="mixed_bfloat16"), kl.Dense(3, dtype="bfloat16")]), VECTORS),
}
OPTIMIZERS = {
    "adam": lambda: keras.optimizers.Adam(0.01),
    "sgd": lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "scaled": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01)),
    "averaged": lambda: keras.optimizers.AdamW(0.01, use_ema=True, clipnorm=1.0, amsgrad=True),
}


def values(variables: Any) -> list[np.ndarray]:
    found = (keras.ops.convert_to_numpy(each) for each in variables)
    return [each.astype("f4") if each.dtype.name == "bfloat16" else each for each in found]


def answer(model: Any, x: np.ndarray) -> np.ndarray:
    y = model(ds.from_numpy(x, "gpu:1"))
    assert ds.device_of(y) is ds.gpu(1)
    return values([y])[0]


def trained(optimizer: Any) -> Any:
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((6,)), kl.Dense(8, activation="tanh"), kl.Dense(3)])
    if optimizer is not None:
        model.compile(optimizer, "mse")
    return model


def train(model: Any) -> None:
    """Run two steps by `train_on_batch`: at an epoch's end Keras (3.15.1) on JAX fails with averaged weights."""
    for _ in range(2):
        model.train_on_batch(VECTORS, LABELS)


def check(name: str, before: Any, after: list[np.ndarray], exact: bool = True) -> None:
    assert len(before.files) == len(after), name
    for key, b in zip(before.files, after, strict=True):
        a = before[key]
        if exact:
            assert np.array_equal(a, b), f"{name}: {key}"
        else:
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5, err_msg=f"{name}: {key}")


def save(folder: Path) -> None:
    for name, (make, x) in MODELS.items():
        model = make()
        model(x)
        for variable in model.variables:
            if "seed" not in variable.path:
                variable.assign(RNG.uniform(0.1, 0.6, size=tuple(variable.shape)).astype("f4"))
        ds.place(model, "gpu:1")
        ds.save(model, folder / name)
        np.savez(folder / f"{name}.npz", *values(model.variables))
        np.savez(folder / f"{name}, answer.npz", answer(model, x))
    for name, make in OPTIMIZERS.items():
        model = ds.place(trained(make()), "gpu:1")
        train(model)
        ds.save(model, folder / name)
        ds.save([model, model.optimizer], folder / f"{name}, two")
        np.savez(folder / f"{name}.npz", *values([*model.variables, *model.optimizer.variables]))
        train(model)
        np.savez(folder / f"{name}, later.npz", *values(model.variables))


def load(folder: Path) -> None:
    for name, (make, x) in MODELS.items():
        model = make()
        if name not in ("own", "unbuilt", "recurrent"):  # these are built when they are loaded
            model(x)
        assert ds.load(folder / name, "gpu:1", into=model) is model
        assert ds.placement_of(model).devices == {ds.gpu(1)}, name
        check(name, np.load(folder / f"{name}.npz"), values(model.variables))
        if name != "half":
            check(name, np.load(folder / f"{name}, answer.npz"), [answer(model, x)], exact=False)
    for name, make in OPTIMIZERS.items():
        model = trained(make())
        ds.load(folder / name, "gpu:0", into=model)
        new = make()
        other = trained(None)
        ds.load(folder / f"{name}, two", "gpu:0", into=[other, new])
        for obj, optimizer in ((model, model.optimizer), (other, new)):
            assert ds.placement_of([obj, optimizer]).devices == {ds.gpu(0)}, name
            check(name, np.load(folder / f"{name}.npz"), values([*obj.variables, *optimizer.variables]))
        train(model)
        check(name, np.load(folder / f"{name}, later.npz"), values(model.variables), exact=False)


if __name__ == "__main__":
    with ds.using(HERE):
        for each in sys.argv[2:]:
            save(Path(each)) if sys.argv[1] == "save" else load(Path(each))
    print("crossed")
