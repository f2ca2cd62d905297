"""The conformance kit on JAX."""

from __future__ import annotations

from typing import Any

import numpy as np

import devshim as ds
from devshim.testing import Conformance


class TestJax(Conformance):
    backend = "jax"

    def gradient(self, fn: Any, x: Any) -> Any:
        import jax

        return jax.grad(lambda t: (fn(t) ** 2).sum())(x)

    def compiled(self, fn: Any) -> Any:
        import jax

        return jax.jit(fn)

    def compilers(self) -> Any:
        import jax

        def scan(fn: Any) -> Any:
            def run(x: Any) -> Any:
                return jax.tree.map(lambda y: y[0], jax.lax.scan(lambda c, _: (c, fn(x)), 0, None, length=1)[1])

            return run

        def vmap(fn: Any) -> Any:
            return lambda x: jax.tree.map(lambda y: y[0], jax.vmap(fn)(x[None]))

        def grad(fn: Any) -> Any:
            return lambda x: jax.vjp(fn, x)[0]

        return {"jit": (jax.jit, True), "scan": (scan, True), "vmap": (vmap, False), "grad": (grad, False)}

    def native_zeros(self) -> Any:
        import jax.numpy as jnp

        return jnp.zeros((2, 2))

    def global_state(self) -> object:
        import jax

        return jax.config.jax_enable_x64, jax.config.jax_default_device, jax.config.jax_platforms

    def train(self, device: ds.Device, inputs: np.ndarray, labels: np.ndarray) -> list[np.ndarray]:
        import jax

        rng = np.random.default_rng(1)
        shapes = {"kernel": (4, 1, 3, 3), "scale": (4,), "shift": (4,), "weight": (144, 4), "bias": (4,)}
        first = {name: rng.standard_normal(shape).astype("float32") for name, shape in shapes.items()}
        weights = ds.place({name: ds.from_numpy(array) for name, array in first.items()}, device)
        moments = [jax.tree.map(lambda w: w * 0, weights) for _ in range(2)]
        x, y = ds.from_numpy(inputs, device), ds.from_numpy(labels.astype("int32"), device)
        for step in range(1, 4):
            key = ds.place(jax.random.key(step), device)
            loss, gradients = jax.value_and_grad(_loss)(weights, x, y, key)
            moments[0] = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments[0], gradients)
            moments[1] = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, moments[1], gradients)
            weights = jax.tree.map(_adam(step), weights, *moments)
        assert {ds.device_of(leaf) for leaf in [*weights.values(), loss]} == {device}
        return [ds.to_numpy(leaf) for tree in (weights, *moments) for leaf in tree.values()]


def _loss(weights: Any, x: Any, y: Any, key: Any) -> Any:
    """Convolution, batch normalisation, ReLU, dropout, a linear layer, cross entropy."""
    import jax
    import jax.numpy as jnp

    x = jax.lax.conv(x, weights["kernel"], (1, 1), "VALID")
    mean, variance = x.mean((0, 2, 3), keepdims=True), x.var((0, 2, 3), keepdims=True)
    scale, shift = (weights[name][:, None, None] for name in ("scale", "shift"))
    x = jax.nn.relu((x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + shift)
    x = jnp.where(jax.random.bernoulli(key, 0.5, x.shape), x * 2, 0)
    logits = x.reshape(len(x), -1) @ weights["weight"] + weights["bias"]
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean()


def _adam(step: int) -> Any:
    def move(w: Any, m: Any, v: Any) -> Any:
        return w - 0.01 * (m / (1 - 0.9**step)) / ((v / (1 - 0.999**step)) ** 0.5 + 1e-8)

    return move
