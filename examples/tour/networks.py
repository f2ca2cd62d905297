"""A small network for the tour: how each framework makes, runs and trains it with the framework's own API.

Requirements of this module:

* The tour's steps are the same everywhere; all code that differs between frameworks is here.
* No framework is imported by statement: `devshim.framework` returns its module.
* The initial weights are equal on every framework. If a framework has no models (JAX, NumPy), a tree of arrays is the
  model.
"""

from __future__ import annotations

from operator import add, matmul
from typing import TYPE_CHECKING, Any

import devshim as ds
from devshim.registry import current

if TYPE_CHECKING:
    from numpy import ndarray

__all__ = ["network_api"]

RATE = 0.05


class Torch:
    """PyTorch; the other frameworks override what differs."""

    transposed = True
    """True if a linear layer's weight has the shape (out, in)."""

    def initial_weights(self) -> list[ndarray]:
        """Return the initial weights: (3, 4), (4,), (4, 2), (2,)."""
        import numpy as np

        waves = [np.sin(np.arange(n) + n).astype("float32") for n in (12, 4, 8, 2)]
        shaped = [wave.reshape(shape) for wave, shape in zip(waves, ((3, 4), (4,), (4, 2), (2,)), strict=True)]
        return [np.ascontiguousarray(each.T) for each in shaped] if self.transposed else shaped

    def net(self) -> Any:
        """Return a network on the CPU."""
        nn = ds.framework().nn
        net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        return self.set_initial_weights(net)

    def set_initial_weights(self, net: Any) -> Any:
        """Return the network with its initial weights."""
        net.load_state_dict(dict(zip(net.state_dict(), map(ds.from_numpy, self.initial_weights()), strict=True)))
        return net

    def optimizer(self, net: Any) -> Any:
        """Return an optimizer with a state."""
        return ds.framework().optim.SGD(net.parameters(), lr=RATE, momentum=0.9)

    def forward(self, net: Any, x: Any) -> Any:
        """Return the network's output."""
        return net(x)

    def weights(self, net: Any) -> list[Any]:
        """Return the weights as tensors."""
        return [weight.detach() for weight in net.parameters()]

    def learn(self, net: Any, optimizer: Any, x: Any) -> Any:
        """Take one training step on the mean of squares; return the network and the optimizer."""
        optimizer.zero_grad()
        (net(x) ** 2).mean().backward()
        optimizer.step()
        return net, optimizer


class Paddle(Torch):
    """PaddlePaddle."""

    transposed = False

    def set_initial_weights(self, net: Any) -> Any:
        net.set_state_dict(dict(zip(net.state_dict(), map(ds.from_numpy, self.initial_weights()), strict=True)))
        return net

    def optimizer(self, net: Any) -> Any:
        return ds.framework().optimizer.Momentum(RATE, parameters=net.parameters())

    def learn(self, net: Any, optimizer: Any, x: Any) -> Any:
        optimizer.clear_grad()
        (net(x) ** 2).mean().backward()
        optimizer.step()
        return net, optimizer


class Keras(Torch):
    """Keras 3 on TensorFlow."""

    transposed = False

    def net(self) -> Any:
        keras = ds.framework().keras
        net = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4, "tanh"), keras.layers.Dense(2)])
        net.set_weights(self.initial_weights())
        return net

    def optimizer(self, net: Any) -> Any:
        return ds.framework().keras.optimizers.SGD(RATE, momentum=0.9)

    def weights(self, net: Any) -> list[Any]:
        return [variable.value for variable in net.trainable_variables]

    def learn(self, net: Any, optimizer: Any, x: Any) -> Any:
        tf = ds.framework()
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(net(x) ** 2)
        weights = net.trainable_variables
        with ds.on(ds.device_of(x)):
            optimizer.apply(tape.gradient(loss, weights), weights)
        return net, optimizer


class Gluon(Torch):
    """Gluon of MXNet 1.9 and 2.0."""

    def net(self) -> Any:
        mx = ds.framework()
        mx.npx.set_np()  # 1.9 starts with the older arrays
        nn, net = mx.gluon.nn, mx.gluon.nn.HybridSequential()
        net.add(nn.Dense(4, activation="tanh", in_units=3), nn.Dense(2, in_units=4))
        net.initialize()
        for parameter, first in zip(net.collect_params().values(), self.initial_weights(), strict=True):
            parameter.set_data(ds.from_numpy(first))
        return net

    def optimizer(self, net: Any) -> Any:
        return ds.framework().gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": RATE, "momentum": 0.9})

    def weights(self, net: Any) -> list[Any]:
        return [parameter.data() for parameter in net.collect_params().values()]

    def learn(self, net: Any, optimizer: Any, x: Any) -> Any:
        with ds.framework().autograd.record():
            loss = (net(x) ** 2).mean()
        loss.backward()
        optimizer.step(1)
        return net, optimizer


class Jax(Torch):
    """JAX: a network is a tree of arrays, an optimizer is a tree of velocities, and each step makes new ones."""

    transposed = False

    def net(self) -> Any:
        w1, b1, w2, b2 = map(ds.from_numpy, self.initial_weights())
        return {"first": {"weight": w1, "bias": b1}, "second": {"weight": w2, "bias": b2}}

    def optimizer(self, net: Any) -> Any:
        return {name: {key: ds.zeros_like(x) for key, x in layer.items()} for name, layer in net.items()}

    def forward(self, net: Any, x: Any) -> Any:
        """Run each operation on the device of its weight: for a tree, the user's code must move the activations."""
        for name, layer in net.items():
            for operator, weight in ((matmul, layer["weight"]), (add, layer["bias"])):
                x = ds.run(operator, ds.place(x, ds.device_of(weight)), weight)
            x = x if name == "second" else ds.run(self.tanh, x)
        return x

    def weights(self, net: Any) -> list[Any]:
        return [x for layer in net.values() for x in layer.values()]

    def tanh(self, x: Any) -> Any:
        return ds.framework().numpy.tanh(x)

    def gradients(self, net: Any, x: Any) -> Any:
        """Return the gradients of the mean of squares, as a tree like the network's."""
        first, second = net["first"], net["second"]

        def loss(first: Any, second: Any) -> Any:
            h = self.tanh(x @ first["weight"] + first["bias"])
            return ((h @ second["weight"] + second["bias"]) ** 2).mean()

        both = ds.framework().grad(loss, (0, 1))(first, second)
        return dict(zip(net, both, strict=True))

    def learn(self, net: Any, optimizer: Any, x: Any) -> Any:
        gradients = self.gradients(net, x)
        new: tuple[Any, Any] = ({}, {})
        for name, layer in net.items():
            speeds = {key: 0.9 * optimizer[name][key] + gradients[name][key] for key in layer}
            new[1][name] = speeds
            new[0][name] = {key: layer[key] - RATE * speeds[key] for key in layer}
        return new


class NumPy(Jax):
    """NumPy: the same as JAX, with the gradients written by hand."""

    def tanh(self, x: Any) -> Any:
        return ds.framework().tanh(x)

    def gradients(self, net: Any, x: Any) -> Any:
        first, second = net["first"], net["second"]
        h = self.tanh(x @ first["weight"] + first["bias"])
        y = h @ second["weight"] + second["bias"]
        out = 2 * y / y.size
        inner = out @ second["weight"].T * (1 - h * h)
        return {
            "first": {"weight": x.T @ inner, "bias": inner.sum(0)},
            "second": {"weight": h.T @ out, "bias": out.sum(0)},
        }


_NETWORKS = {"torch": Torch, "tensorflow": Keras, "mxnet": Gluon, "paddle": Paddle, "jax": Jax, "numpy": NumPy}


def network_api() -> Torch:
    """Return the current framework's implementation of the network.

    Raises:
        UnsupportedError: The tour has no network for it.
    """
    name = current.current().name
    if name not in _NETWORKS:
        msg = f"the tour has no network for {name}"
        raise ds.UnsupportedError(msg, "write one with the framework's own API")
    return _NETWORKS[name]()
