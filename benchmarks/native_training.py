"""The loop of `benchmarks.test_training` in each framework's own code, and its comparison with a neutral program.

The functions have the same names in most frameworks; `Words` lists those that do not, and each is the framework's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import devshim as ds
from benchmarks.session import Rival, Session

ROUNDS = 21

Loss = Callable[[Sequence[Any], Any, Any], Any]


@dataclass(frozen=True)
class Words:
    """The functions of a framework that the native loop uses.

    Args:
        math: The module with ``tanh``, ``exp``, ``log``, ``matmul`` and ``reshape``.
        asarray: Makes a tensor from a NumPy array, over the same memory if the framework can.
        concat: Joins a list of tensors along an axis.
        max: Reduces over an axis or several, with ``keepdims`` as the third argument.
        sum: Reduces over an axis.
        mean: Reduces to a scalar.
        pick: Returns the column of each row.
        constant: Returns a tensor that passes on no gradient.
        value_and_grad: Returns a function of parameters, images and labels that returns a loss and its gradients.
        read: Returns a list of scalars as a NumPy array, in one transfer.
    """

    math: Any
    asarray: Callable[[np.ndarray], Any]
    concat: Callable[[list[Any], int], Any]
    max: Callable[[Any, Any, bool], Any]
    sum: Callable[[Any, int], Any]
    mean: Callable[[Any], Any]
    pick: Callable[[Any, Any], Any]
    constant: Callable[[Any], Any]
    value_and_grad: Callable[[Loss], Callable[[Sequence[Any], Any, Any], tuple[Any, Sequence[Any]]]]
    read: Callable[[list[Any]], np.ndarray]


def compare(benchmark: Any, session: Session, case: str, neutral: Any, native: Any, data: Any, target: float) -> None:
    """Measure the methods ``train`` of a neutral and a native program on the same data; both must find the same losses.

    A training ends when its last update has been computed: some frameworks return the losses before.

    Args:
        benchmark: The fixture of pytest-benchmark.
        session: The session that records the result.
        case: The name of the row.
        neutral: The program with devshim.
        native: The program in the framework's own code.
        data: The argument of both.
        target: The largest ratio of the two times that meets the aim.
    """
    np.testing.assert_allclose(neutral.train(data), native.train(data), rtol=1e-5)

    def finish(program: Any) -> None:
        program.train(data)
        ds.synchronize()

    ours = ("the neutral loop", lambda: finish(neutral))
    rivals = [Rival("the native loop", lambda: finish(native), target=target)]
    session.versus(benchmark, "training", case, ours, rivals, {}, rounds=min(ROUNDS, session.rounds))


class Loop:
    """LeNet with momentum, on the CPU."""

    def __init__(self, words: Words, weights: Sequence[np.ndarray], rate: float, momentum: float) -> None:
        self.words, self.rate, self.momentum = words, rate, momentum
        self.weights = [words.asarray(each) for each in weights]
        self.momenta = [words.asarray(np.zeros_like(each)) for each in weights]

    def train(self, batches: Iterable[dict[str, np.ndarray]]) -> np.ndarray:
        """Return the loss of each batch."""
        asarray, rate, momentum = self.words.asarray, self.rate, self.momentum
        step = self.words.value_and_grad(self._loss)
        weights, momenta, losses = self.weights, self.momenta, []
        for batch in batches:
            value, grads = step(weights, asarray(batch["images"]), asarray(batch["labels"]))
            momenta = [momentum * m + grad for m, grad in zip(momenta, grads, strict=True)]
            weights = [x - rate * m for x, m in zip(weights, momenta, strict=True)]
            losses.append(value)
        return self.words.read(losses)

    def _loss(self, weights: Sequence[Any], images: Any, labels: Any) -> Any:
        words, math = self.words, self.words.math
        x = images
        for i in (0, 2):
            x = self._pool(math.tanh(self._convolve(x, weights[i], weights[i + 1])))
        x = math.reshape(x, (x.shape[0], -1))
        for i in (4, 6):
            x = math.tanh(math.matmul(x, weights[i]) + weights[i + 1])
        outputs = math.matmul(x, weights[8]) + weights[9]
        shifted = outputs - words.constant(words.max(outputs, 1, True))
        return words.mean(math.log(words.sum(math.exp(shifted), 1)) - words.pick(shifted, labels))

    def _convolve(self, x: Any, weight: Any, bias: Any) -> Any:
        for axis in (1, 2):
            end = x.shape[axis] - 4
            shifted = [x[:, i : i + end] if axis == 1 else x[:, :, i : i + end] for i in range(5)]
            x = self.words.concat(shifted, 3)
        return self.words.math.matmul(x, weight) + bias

    def _pool(self, x: Any) -> Any:
        rows, height, width, channels = x.shape
        joined = self.words.math.reshape(x, (rows, height // 2, 2, width // 2, 2, channels))
        return self.words.max(joined, (2, 4), False)


def _torch() -> Words:
    import torch

    def value_and_grad(loss: Loss) -> Any:
        def step(weights: Sequence[Any], images: Any, labels: Any) -> tuple[Any, Sequence[Any]]:
            weights = [x.detach().requires_grad_() for x in weights]
            value = loss(weights, images, labels)
            return value.detach(), torch.autograd.grad(value, weights)

        return step

    return Words(
        torch,
        torch.from_numpy,
        torch.cat,
        torch.amax,
        torch.sum,
        torch.mean,
        lambda x, labels: torch.gather(x, 1, labels[:, None])[:, 0],
        lambda x: x.detach(),
        value_and_grad,
        lambda losses: torch.stack(losses).numpy(),
    )


def _tensorflow() -> Words:
    import tensorflow as tf

    class Math:
        tanh, exp, log, matmul, reshape = tf.tanh, tf.exp, tf.math.log, tf.matmul, tf.reshape

    def value_and_grad(loss: Loss) -> Any:
        def step(weights: Sequence[Any], images: Any, labels: Any) -> tuple[Any, Sequence[Any]]:
            with tf.GradientTape() as tape:
                tape.watch(weights)
                value = loss(weights, images, labels)
            return value, tape.gradient(value, weights)

        return step

    return Words(
        Math,
        tf.convert_to_tensor,
        tf.concat,
        tf.reduce_max,
        tf.reduce_sum,
        tf.reduce_mean,
        lambda x, labels: tf.gather(x, labels[:, None], axis=1, batch_dims=1)[:, 0],
        tf.stop_gradient,
        value_and_grad,
        lambda losses: tf.stack(losses).numpy(),
    )


def _jax() -> Words:
    import jax
    import jax.numpy as jnp

    return Words(
        jnp,
        jnp.asarray,
        jnp.concatenate,
        lambda x, axis, keepdims: jnp.max(x, axis, keepdims=keepdims),
        jnp.sum,
        jnp.mean,
        lambda x, labels: jnp.take_along_axis(x, labels[:, None], axis=1)[:, 0],
        jax.lax.stop_gradient,
        jax.value_and_grad,
        lambda losses: np.asarray(jnp.stack(losses)),
    )


def _paddle() -> Words:
    import paddle

    def value_and_grad(loss: Loss) -> Any:
        def step(weights: Sequence[Any], images: Any, labels: Any) -> tuple[Any, Sequence[Any]]:
            weights = [x.detach() for x in weights]
            for x in weights:
                x.stop_gradient = False
            value = loss(weights, images, labels)
            return value.detach(), paddle.grad(value, weights)

        return step

    def largest(x: Any, axis: Any, keepdims: bool) -> Any:
        if len(x.shape) < 5:
            return paddle.max(x, axis, keepdims)
        return paddle.max(paddle.max(x, axis[1]), axis[0])  # over both at once, its gradient is wrong (3.3)

    return Words(
        paddle,
        paddle.to_tensor,
        paddle.concat,
        largest,
        paddle.sum,
        paddle.mean,
        lambda x, labels: paddle.take_along_axis(x, labels[:, None], 1)[:, 0],
        lambda x: x.detach(),
        value_and_grad,
        lambda losses: paddle.stack(losses).numpy(),
    )


def _mxnet() -> Words:
    import mxnet as mx

    mx.npx.set_np()

    def value_and_grad(loss: Loss) -> Any:
        def step(weights: Sequence[Any], images: Any, labels: Any) -> tuple[Any, Sequence[Any]]:
            weights = [x.detach() for x in weights]
            for x in weights:
                x.attach_grad()
            with mx.autograd.record():
                value = loss(weights, images, labels)
            value.backward()
            return value.detach(), [x.grad for x in weights]

        return step

    class Math:
        tanh, exp, log, matmul, reshape = mx.np.tanh, mx.np.exp, mx.np.log, mx.np.matmul, mx.np.reshape

    return Words(
        Math,
        lambda a: mx.np.array(a, dtype=a.dtype),
        mx.np.concatenate,
        lambda x, axis, keepdims: mx.np.max(x, axis, keepdims=keepdims),
        mx.np.sum,
        mx.np.mean,
        mx.npx.pick,
        lambda x: x.detach(),
        value_and_grad,
        lambda losses: mx.np.stack(losses).asnumpy(),
    )


WORDS: dict[str, Callable[[], Words]] = {
    "torch": _torch,
    "tensorflow": _tensorflow,
    "jax": _jax,
    "paddle": _paddle,
    "mxnet": _mxnet,
}
"""By backend."""
