"""The work that is timed on the CPU and on simulated GPUs: small operators, and training steps of each framework.

``python -m benchmarks.work torch`` times it on the CPU, in a process without simulated GPUs: hooks of a simulation
would slow the CPU's operators too. Each line that it reads is a number and a case; it runs the case that often and
prints the seconds of processor time per call. ``python -m benchmarks.work jax --second`` times it on a second CPU
device of the framework's own, as which a simulated GPU computes, without devshim.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import process_time
from timeit import timeit
from typing import Any

from benchmarks.operators import operators

Work = dict[str, Callable[[], object]]
STEP = "a training step of a small convolutional net"
MLP = "a training step of eight small dense layers"
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

    small = _tensorflow_mlp(n)
    steps = {STEP: step, MLP: small}
    compiled = {f"{case}, as a `tf.function`": tf.function(each) for case, each in steps.items()}
    return {case: lambda each=each: each().numpy() for case, each in {**steps, **compiled}.items()}


def _tensorflow_mlp(n: Any) -> Callable[[], Any]:
    import tensorflow as tf

    with tf.device(n):
        weights = [tf.Variable(tf.ones((64, 64)) * 0.01) for _ in range(8)]
        biases = [tf.Variable(tf.zeros(64)) for _ in range(8)]
        x, y = tf.ones((16, 64)), tf.ones((16, 64))

    def step() -> Any:
        with tf.device(n):
            with tf.GradientTape() as tape:
                found = x
                for w, b in zip(weights, biases, strict=True):
                    found = tf.nn.relu(found @ w + b)
                loss = tf.reduce_mean((found - y) ** 2)
            for variable, gradient in zip(weights + biases, tape.gradient(loss, weights + biases), strict=True):
                variable.assign_sub(2e-3 * gradient)
            return loss

    return step


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

    small, layers = _jax_mlp(n)
    steps = {STEP: (step, weights), MLP: (small, layers)}
    compiled = {f"{case}, with `jax.jit`": (jax.jit(each), given) for case, (each, given) in steps.items()}
    return {
        case: lambda each=each, given=given: jax.block_until_ready(each(given))
        for case, (each, given) in {**steps, **compiled}.items()
    }


def _jax_mlp(n: Any) -> tuple[Callable[[Any], Any], Any]:
    import jax
    import jax.numpy as jnp

    layers = [(jnp.ones((64, 64)) * 0.01, jnp.zeros(64)) for _ in range(8)]
    layers, x, y = jax.device_put((layers, jnp.ones((16, 64)), jnp.ones((16, 64))), n)

    def loss(layers: Any) -> Any:
        found = x
        for weight, bias in layers:
            found = jax.nn.relu(found @ weight + bias)
        return ((found - y) ** 2).mean()

    def step(layers: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(layers)
        return value, jax.tree.map(lambda w, g: w - 1e-3 * g, layers, gradients)

    return step, layers


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
    from mxnet import gluon

    mx.npx.set_np()
    where = {"device" if hasattr(mx, "device") else "ctx": n}
    images, labels = mx.np.ones((32, 3, 32, 32), **where), mx.np.zeros((32,), **where)
    x, y = mx.np.ones((16, 64), **where), mx.np.ones((16, 64), **where)

    def convolutions() -> list[Any]:
        return [gluon.nn.Conv2D(16, 3, activation="relu"), gluon.nn.MaxPool2D(2), gluon.nn.Dense(10)]

    def layers() -> list[Any]:
        return [gluon.nn.Dense(64, activation="relu") for _ in range(8)]

    step = _mxnet_step(convolutions(), gluon.loss.SoftmaxCrossEntropyLoss(), images, labels, where)
    work = {STEP: step, MLP: _mxnet_step(layers(), gluon.loss.L2Loss(), x, y, where)}
    work[f"{MLP}, hybridized"] = _mxnet_step(layers(), gluon.loss.L2Loss(), x, y, where, hybridize=True)
    return work


def _mxnet_step(layers: Any, loss: Any, x: Any, y: Any, where: Any, hybridize: bool = False) -> Callable[[], object]:
    from mxnet import autograd, gluon

    net = gluon.nn.HybridSequential()
    net.add(*layers)
    net.initialize(**where)
    if hybridize:
        net.hybridize()
        loss.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 1e-3})

    def step() -> None:
        with autograd.record():
            value = loss(net(x), y).mean()
        value.backward()
        trainer.step(1)
        value.wait_to_read()
        net[0].weight.data().wait_to_read()

    return step


WORK: dict[str, Callable[[Any], Work]] = {
    "torch": _torch,
    "tensorflow": _tensorflow,
    "jax": _jax,
    "paddle": _paddle,
    "mxnet": _mxnet,
}
"""Framework -> its work on a device, which is an object of the framework."""


def _second_tensorflow() -> Any:
    import tensorflow as tf

    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 9)
    return "/CPU:1"


def _second_jax() -> Any:
    import jax

    jax.config.update("jax_num_cpu_devices", 3)
    return jax.devices("cpu")[1]


def _second_mxnet() -> Any:
    import mxnet as mx

    return mx.cpu(1)


SECOND: dict[str, Callable[[], Any]] = {
    "tensorflow": _second_tensorflow,
    "jax": _second_jax,
    "mxnet": _second_mxnet,
}
"""Framework -> its second CPU device, in a process that has not used it yet."""


def main(name: str, *options: str) -> None:
    """Time cases on the CPU until the input ends."""
    from benchmarks.frameworks import NATIVE

    native = NATIVE[name]
    if native.backend == "mxnet":  # its import fails beside a current NumPy without devshim's hooks
        import devshim as ds

        ds.framework("mxnet")
    device = SECOND[native.backend]() if options == ("--second",) else native.begin()["n"]
    work = WORK[native.backend](device)
    for line in sys.stdin:
        number, _, case = line.rstrip("\n").partition(" ")
        print(timeit(work[case], timer=process_time, number=int(number)) / int(number), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
