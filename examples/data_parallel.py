"""Data-parallel training: one loop for every framework, and the few words that each says in its own way.

    python examples/data_parallel.py torch

trains a small network on one device, and again on all GPUs (or on three simulated ones), and prints how far the
weights are apart.  The gradient of each part is that of the *sum* over its rows, divided by the rows of the *whole*
batch: so parts of different sizes, and a last batch that is smaller, weigh what they should.  Every replica then takes
the same step with the same bits, so that they never drift apart.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import devshim as ds

RNG = np.random.default_rng(0)
INPUTS = RNG.standard_normal((23, 4)).astype("float32")
LABELS = np.tanh(INPUTS @ RNG.standard_normal((4, 2))).astype("float32")
BATCHES = [(INPUTS[i : i + 8], LABELS[i : i + 8]) for i in range(0, 23, 8)] * 2  # every third has 7 rows
FIRST = [RNG.standard_normal(shape).astype("float32") / 2 for shape in ((4, 8), (8,), (8, 2), (2,))]


def train(words: Any, devices: list[Any]) -> list[Any]:
    """Return the replicas of a model, trained on the devices given."""
    replicas = ds.replicate(words.model(), devices)
    optimizers = []
    for replica, device in zip(replicas, devices, strict=True):
        with ds.on(device):
            optimizers.append(words.optimizer(replica))
    for inputs, labels in BATCHES:
        batch = ds.from_numpy(inputs), ds.from_numpy(labels)

        def backward(work: Any, rows: int = len(inputs)) -> Any:
            replica, (x, y) = work
            return words.gradients(replica, x, y, rows)

        parts = ds.split(batch, devices)
        gradients = ds.parallel([backward] * len(devices), list(zip(replicas, parts, strict=True)))
        ds.all_reduce_(gradients)
        for i, device in enumerate(devices):
            with ds.on(device):
                replicas[i] = words.step(replicas[i], optimizers[i], gradients[i])
    return replicas


class Torch:
    """PyTorch."""

    def model(self) -> Any:
        nn = ds.framework().nn
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        model.load_state_dict(dict(zip(model.state_dict(), map(ds.from_numpy, _transposed()), strict=True)))
        return model

    def optimizer(self, model: Any) -> Any:
        return ds.framework().optim.Adam(model.parameters(), lr=0.05)

    def gradients(self, model: Any, x: Any, y: Any, rows: int) -> Any:
        model.zero_grad()
        (((model(x) - y) ** 2).sum() / rows).backward()
        return [parameter.grad for parameter in model.parameters()]

    def step(self, model: Any, optimizer: Any, gradients: Any) -> Any:
        optimizer.step()  # the gradients have been summed in place
        return model

    def weights(self, model: Any) -> Any:
        return [parameter.detach() for parameter in model.parameters()]


class TensorFlow:
    """Keras 3 on TensorFlow."""

    def model(self) -> Any:
        keras = ds.framework().keras
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(2)])
        model.set_weights(FIRST)
        return model

    def optimizer(self, model: Any) -> Any:
        return ds.framework().keras.optimizers.Adam(0.05)

    def gradients(self, model: Any, x: Any, y: Any, rows: int) -> Any:
        tf = ds.framework()
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((model(x) - y) ** 2) / rows
        return tape.gradient(loss, [variable.value for variable in model.trainable_variables])

    def step(self, model: Any, optimizer: Any, gradients: Any) -> Any:
        optimizer.apply(gradients, model.trainable_variables)
        return model

    def weights(self, model: Any) -> Any:
        return [variable.value for variable in model.trainable_variables]


class MXNet:
    """Gluon, of MXNet 1.9 and 2.0."""

    def model(self) -> Any:
        mx = ds.framework()
        mx.npx.set_np()
        nn, model = mx.gluon.nn, mx.gluon.nn.HybridSequential()
        model.add(nn.Dense(8, activation="tanh", in_units=4), nn.Dense(2, in_units=8))
        model.initialize()
        for parameter, first in zip(model.collect_params().values(), _transposed(), strict=True):
            parameter.set_data(ds.from_numpy(first))
        return model

    def optimizer(self, model: Any) -> Any:
        return ds.framework().gluon.Trainer(model.collect_params(), "adam", {"learning_rate": 0.05})

    def gradients(self, model: Any, x: Any, y: Any, rows: int) -> Any:
        with ds.framework().autograd.record():
            loss = ((model(x) - y) ** 2).sum() / rows
        loss.backward()
        return [parameter.grad() for parameter in model.collect_params().values()]

    def step(self, model: Any, optimizer: Any, gradients: Any) -> Any:
        optimizer.step(1)  # the gradients have been summed in place, and divided
        return model

    def weights(self, model: Any) -> Any:
        return [parameter.data() for parameter in model.collect_params().values()]


class Paddle(Torch):
    """PaddlePaddle: PyTorch's words, but for these."""

    def model(self) -> Any:
        nn = ds.framework().nn
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        model.set_state_dict(dict(zip(model.state_dict(), map(ds.from_numpy, FIRST), strict=True)))
        return model

    def optimizer(self, model: Any) -> Any:
        return ds.framework().optimizer.Adam(0.05, parameters=model.parameters())

    def gradients(self, model: Any, x: Any, y: Any, rows: int) -> Any:
        model.clear_gradients()
        (((model(x) - y) ** 2).sum() / rows).backward()
        return [parameter.grad for parameter in model.parameters()]


class Jax:
    """JAX: the model is a tree of arrays, and a step makes a new one."""

    rate = 0.05

    def model(self) -> Any:
        return [ds.from_numpy(first) for first in FIRST]

    def optimizer(self, model: Any) -> Any:
        return None

    def gradients(self, model: Any, x: Any, y: Any, rows: int) -> Any:
        jax = ds.framework()

        def loss(model: Any) -> Any:
            w1, b1, w2, b2 = model
            return ((jax.numpy.tanh(x @ w1 + b1) @ w2 + b2 - y) ** 2).sum() / rows

        return jax.grad(loss)(model)

    def step(self, model: Any, optimizer: Any, gradients: Any) -> Any:
        return [w - self.rate * gradient for w, gradient in zip(model, gradients, strict=True)]

    def weights(self, model: Any) -> Any:
        return model


class NumPy(Jax):
    """NumPy: as JAX, with gradients by hand."""

    def gradients(self, model: Any, x: Any, y: Any, rows: int) -> Any:
        w1, b1, w2, b2 = model
        h = np.tanh(x @ w1 + b1)
        out = 2 * (h @ w2 + b2 - y) / rows
        inner = out @ w2.T * (1 - h * h)
        return [x.T @ inner, inner.sum(0), h.T @ out, out.sum(0)]


WORDS = {"torch": Torch, "tensorflow": TensorFlow, "mxnet": MXNet, "paddle": Paddle, "jax": Jax, "numpy": NumPy}


def _transposed() -> list[np.ndarray]:
    """The first weights as layers have them whose weights are (out, in)."""
    return [np.ascontiguousarray(first.T) for first in FIRST]


def main(name: str) -> int:
    """Train both ways, print how far apart they are, and return 1 where that is more than rounding."""
    ds.use(name)
    if not ds.device_count():
        ds.simulate(3)
    words, devices = WORDS[name](), ds.try_all_gpus()

    def read(model: Any) -> list[np.ndarray]:
        return [ds.to_numpy(weight) for weight in words.weights(model)]

    first, one = read(words.model()), read(train(words, ["cpu"])[0])
    many = [read(replica) for replica in train(words, devices)]
    learned, apart = (
        max(float(np.abs(a - b).max()) for a, b in zip(one, each, strict=True)) for each in (first, many[0])
    )
    same = all(a.tobytes() == b.tobytes() for replica in many for a, b in zip(replica, many[0], strict=True))
    simulated = " (simulated)" if ds.describe(devices[0]).simulated else ""
    print(f"{name} on {', '.join(map(str, devices))}{simulated}, {len(BATCHES)} batches of 8, 8, 7, ... rows:")
    print(f"weights moved by {learned:.2g}, and are {apart:.2g} from those trained on one device;")
    print(f"the replicas are {'equal to the bit' if same else 'NOT EQUAL'}")
    return 0 if same and apart < 1e-5 < learned else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ds.framework().__name__))
