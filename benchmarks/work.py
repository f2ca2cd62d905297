"""The work that is timed on the CPU and on simulated GPUs: small operators, and training steps of each framework.

``python -m benchmarks.work torch`` times it on the CPU, in a process without simulated GPUs: hooks of a simulation
would slow the CPU's operators too. Each line that it reads is a number and a case; it runs the case that often and
prints the seconds per call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from timeit import timeit
from typing import Any

from benchmarks.operators import operators

Work = dict[str, Callable[[], object]]
STEP = "a training step of a small convolutional net"
RESNET = "ResNet-18, forward and backward"


def _torch(n: Any) -> Work:
    import torch

    torch.set_num_threads(1)
    return {**operators(n), STEP: _torch_step(n)}


def _torch_step(n: Any) -> Callable[[], object]:
    import torch
    from torch import nn

    layers = [nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(3600, 10)]
    model = nn.Sequential(*layers).to(n)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x, y = torch.ones(32, 3, 32, 32).to(n), torch.zeros(32, dtype=torch.int64).to(n)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def _tensorflow(n: Any) -> Work:
    import keras
    import tensorflow as tf

    with tf.device(n):
        model = keras.Sequential(
            [
                keras.layers.Conv2D(16, 3, activation="relu"),
                keras.layers.MaxPooling2D(2),
                keras.layers.Flatten(),
                keras.layers.Dense(10),
            ]
        )
        x, y = tf.ones((32, 32, 32, 3)), tf.zeros((32,), tf.int32)
        model(x)
        optimizer = keras.optimizers.SGD(1e-3)
        optimizer.build(model.trainable_variables)

    def step() -> Any:
        with tf.device(n):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(x)))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

    compiled = tf.function(step)
    return {STEP: lambda: step().numpy(), f"{STEP}, as a `tf.function`": lambda: compiled().numpy()}


def _jax(n: Any) -> Work:
    import jax
    import jax.numpy as jnp

    weights = {"kernel": jnp.ones((16, 3, 3, 3)) * 0.01, "dense": jnp.ones((16 * 30 * 30, 10)) * 0.01}
    weights, x, y = jax.device_put((weights, jnp.ones((32, 3, 32, 32)), jnp.zeros(32, jnp.int32)), n)

    def loss(weights: Any) -> Any:
        maps = jax.nn.relu(jax.lax.conv(x, weights["kernel"], (1, 1), "VALID"))
        logits = maps.reshape(32, -1) @ weights["dense"]
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean()

    def step(weights: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(weights)
        return value, jax.tree.map(lambda w, g: w - 1e-3 * g, weights, gradients)

    compiled = jax.jit(step)
    return {
        STEP: lambda: jax.block_until_ready(step(weights)),
        f"{STEP}, with `jax.jit`": lambda: jax.block_until_ready(compiled(weights)),
    }


def _paddle(n: Any) -> Work:
    import paddle

    model = paddle.vision.models.resnet18(num_classes=10).to(n)
    x, y = paddle.ones([4, 3, 64, 64]).to(n), paddle.zeros([4], dtype="int64").to(n)

    def step() -> None:
        paddle.nn.functional.cross_entropy(model(x), y).backward()
        model.clear_gradients()

    return {RESNET: step}


def _mxnet(n: Any) -> Work:
    import mxnet as mx
    from mxnet import autograd, gluon

    mx.npx.set_np()
    where = {"device" if hasattr(mx, "device") else "ctx": n}
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Conv2D(16, 3, activation="relu"), gluon.nn.MaxPool2D(2), gluon.nn.Dense(10))
    net.initialize(**where)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 1e-3})
    x, y = mx.np.ones((32, 3, 32, 32), **where), mx.np.zeros((32,), **where)
    loss = gluon.loss.SoftmaxCrossEntropyLoss()

    def step() -> None:
        with autograd.record():
            value = loss(net(x), y).mean()
        value.backward()
        trainer.step(1)
        value.wait_to_read()
        net[0].weight.data().wait_to_read()

    return {STEP: step}


WORK: dict[str, Callable[[Any], Work]] = {
    "torch": _torch,
    "tensorflow": _tensorflow,
    "jax": _jax,
    "paddle": _paddle,
    "mxnet": _mxnet,
}
"""Framework -> its work on a device, which is an object of the framework."""


def main(name: str) -> None:
    """Time cases on the CPU until the input ends."""
    from benchmarks.frameworks import NATIVE

    if NATIVE[name].backend == "mxnet":  # its import fails beside a current NumPy without devshim's hooks
        import devshim as ds

        ds.framework("mxnet")
    work = WORK[NATIVE[name].backend](NATIVE[name].begin()["n"])
    for line in sys.stdin:
        number, _, case = line.rstrip("\n").partition(" ")
        print(timeit(work[case], number=int(number)) / int(number), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
