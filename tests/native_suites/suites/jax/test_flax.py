"""Programs with Flax NNX, Optax and Equinox, written for two CUDA GPUs."""

from __future__ import annotations

from functools import partial
from typing import Any

import equinox
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx
from flax.training.train_state import TrainState
from jax.sharding import Mesh, NamedSharding, PartitionSpec

SUITE = "programs: Flax, Optax and Equinox"
TESTED = ("flax", "optax", "equinox")
P = PartitionSpec
GPUS = jax.devices("gpu")


def mesh() -> Mesh:
    return Mesh(np.array(GPUS), ("data",))


def batch() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(32, 8)).astype(np.float32)
    return x, (x.sum(1) > 0).astype(np.int32)


class Net(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first = nnx.Linear(8, 16, rngs=rngs)
        self.norm = nnx.BatchNorm(16, rngs=rngs)
        self.drop = nnx.Dropout(0.1, rngs=rngs)
        self.last = nnx.Linear(16, 2, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.last(self.drop(nnx.relu(self.norm(self.first(x)))))


@nnx.jit
def train_step(model: Net, optimizer: nnx.Optimizer, x: jax.Array, target: jax.Array) -> jax.Array:
    def loss(model: Net) -> jax.Array:
        return optax.softmax_cross_entropy_with_integer_labels(model(x), target).mean()

    value, grads = nnx.value_and_grad(loss)(model)
    optimizer.update(model, grads)
    return value


@pytest.mark.parametrize("where", [0, 1, "both"])
def test_an_nnx_module_trains(where: Any) -> None:
    model = Net(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
    x, target = batch()
    if where == "both":
        whole, over = NamedSharding(mesh(), P()), NamedSharding(mesh(), P("data"))
        expected = set(GPUS)
    else:
        whole = over = jax.sharding.SingleDeviceSharding(GPUS[where])
        expected = {GPUS[where]}
    state = nnx.state((model, optimizer))
    nnx.update((model, optimizer), jax.device_put(state, whole))
    x, target = jax.device_put((x, target), over)
    values = [float(train_step(model, optimizer, x, target)) for _ in range(10)]
    assert values[-1] < values[0]
    assert model.first.kernel[...].devices() == expected
    assert model.norm.mean[...].devices() == expected


def test_an_nnx_module_is_made_sharded() -> None:
    @nnx.jit
    def make() -> Net:
        model = Net(nnx.Rngs(0))
        state = nnx.state(model)
        nnx.update(
            model, jax.lax.with_sharding_constraint(state, jax.tree.map(lambda _: NamedSharding(mesh(), P()), state))
        )
        return model

    assert make().first.kernel[...].devices() == set(GPUS)


def test_an_nnx_module_is_split_and_merged() -> None:
    graph, state = nnx.split(Net(nnx.Rngs(0)))
    moved = nnx.merge(graph, jax.device_put(state, GPUS[1]))
    moved.eval()
    assert moved(jax.device_put(batch()[0], GPUS[1])).devices() == {GPUS[1]}


def test_linen_trains_with_pmap() -> None:
    class Classifier(linen.Module):
        @linen.compact
        def __call__(self, x: jax.Array) -> jax.Array:
            return linen.Dense(2)(linen.relu(linen.Dense(16)(x)))

    model = Classifier()
    x, target = batch()
    state = TrainState.create(
        apply_fn=model.apply, params=model.init(jax.random.key(0), x)["params"], tx=optax.sgd(0.1, momentum=0.9)
    )
    from flax import jax_utils

    state = jax_utils.replicate(state)

    @partial(jax.pmap, axis_name="data")
    def step(state: Any, x: jax.Array, target: jax.Array) -> Any:
        def loss(params: Any) -> jax.Array:
            scores = state.apply_fn({"params": params}, x)
            return optax.softmax_cross_entropy_with_integer_labels(scores, target).mean()

        value, grads = jax.value_and_grad(loss)(state.params)
        return state.apply_gradients(grads=jax.lax.pmean(grads, "data")), jax.lax.pmean(value, "data")

    values = []
    rows = iter([(x.reshape(2, 16, 8), target.reshape(2, 16))] * 6)
    for part, labels in jax_utils.prefetch_to_device(rows, 2):
        state, value = step(state, part, labels)
        values.append(float(value[0]))
    assert values[-1] < values[0]
    assert int(jax_utils.unreplicate(state).step) == 6


def test_an_equinox_module_trains_on_both_gpus() -> None:
    whole, over = NamedSharding(mesh(), P()), NamedSharding(mesh(), P("data"))
    model = equinox.nn.MLP(8, 2, 16, 2, key=jax.random.key(0))
    optimizer = optax.adamw(1e-2)
    state = optimizer.init(equinox.filter(model, equinox.is_inexact_array))
    model, state = equinox.filter_shard((model, state), whole)
    x, target = equinox.filter_shard(batch(), over)

    @equinox.filter_jit(donate="all-except-first")
    def step(data: Any, model: Any, state: Any) -> Any:
        x, target = data

        def loss(model: Any) -> jax.Array:
            return optax.softmax_cross_entropy_with_integer_labels(jax.vmap(model)(x), target).mean()

        value, grads = equinox.filter_value_and_grad(loss)(model)
        updates, state = optimizer.update(grads, state, equinox.filter(model, equinox.is_inexact_array))
        return equinox.apply_updates(model, updates), state, value

    values = []
    for _ in range(8):
        model, state, value = step((x, target), model, state)
        values.append(float(value))
    assert values[-1] < values[0]
    assert model.layers[0].weight.devices() == set(GPUS)


def test_a_recurrent_net_scans_on_the_second_gpu() -> None:
    cell = nnx.RNN(nnx.GRUCell(8, 4, rngs=nnx.Rngs(0)))
    graph, state = nnx.split(cell)
    cell = nnx.merge(graph, jax.device_put(state, GPUS[1]))
    assert cell(jax.device_put(jnp.ones((2, 5, 8)), GPUS[1])).devices() == {GPUS[1]}


def test_attention_answers_on_a_gpu() -> None:
    with jax.default_device(GPUS[1]):
        attention = nnx.MultiHeadAttention(2, 8, decode=False, rngs=nnx.Rngs(0))
        assert attention(jnp.ones((2, 5, 8))).devices() == {GPUS[1]}
