"""Tests of `devshim.data_parallel` of models of Flax NNX, Equinox, and partial functions."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import devshim as ds

X = np.arange(20, dtype="float32").reshape(5, 4) / 10


class Nnx(nnx.Module):
    """Two layers with a normalization."""

    def __init__(self) -> None:
        rngs = nnx.Rngs(0)
        self.first, self.norm = nnx.Linear(4, 3, rngs=rngs), nnx.BatchNorm(3, rngs=rngs, use_running_average=True)
        self.second = nnx.Linear(3, 2, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.second(jnp.tanh(self.norm(self.first(x))))


class Equinox(eqx.Module):
    """A registered pytree that can be called."""

    w: Any
    b: Any

    def __call__(self, x: Any) -> Any:
        return x @ self.w + self.b


MODELS = {
    "nnx": Nnx,
    "equinox": lambda: Equinox(jnp.ones((4, 2)), jnp.zeros(2)),
    "partial": lambda: jax.tree_util.Partial(lambda params, x: x @ params["w"], {"w": jnp.ones((4, 2))}),
}


@pytest.mark.parametrize("home", ["cpu", "gpu:1"])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_gets_the_gradients_of_all_parts(name: str, home: str) -> None:
    with ds.using("jax"), ds.simulate(2):
        net, x = ds.place(MODELS[name](), home), ds.from_numpy(X)
        y = ds.data_parallel(net, ["gpu:0", "gpu:1"])(x)
        assert np.allclose(ds.to_numpy(y), ds.to_numpy(net(ds.place(x, home))), rtol=1e-5)
        assert str(ds.device_of(y)) == home
        expected, slopes = ds.value_and_grad(lambda net: jnp.sum(net(ds.place(x, home)) ** 2))(net)
        value, grads = ds.value_and_grad(lambda net: jnp.sum(ds.data_parallel(net, ["gpu:0", "gpu:1"])(x) ** 2))(net)
        assert float(value) == pytest.approx(float(expected), rel=1e-5)
        pairs = list(zip(jax.tree_util.tree_leaves(grads), jax.tree_util.tree_leaves(slopes), strict=True))
        assert pairs
        for grad, slope in pairs:
            assert np.allclose(ds.to_numpy(grad), ds.to_numpy(slope), rtol=1e-4)
            assert str(ds.device_of(grad)) == home
