"""Tests of Flax and equinox on JAX: registered classes move as trees, NNX modules and optimizers move in place."""

from __future__ import annotations

import equinox as eqx
import flax.linen as nn
import flax.nnx as nnx
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax.core import FrozenDict
from flax.training.train_state import TrainState

import devshim as ds

pytestmark = pytest.mark.usefixtures("three_cards")
GPU = "gpu:1"
CPU = ds.cpu()


@flax.struct.dataclass
class Struct:
    x: jax.Array
    n: int = flax.struct.field(pytree_node=False)


def linen():
    return nn.Dense(3).init(jax.random.key(0), jnp.ones((1, 2)))


def train_state():
    return TrainState.create(apply_fn=nn.Dense(3).apply, params=linen()["params"], tx=optax.adam(1e-3))


def batch_norm():
    return eqx.nn.make_with_state(eqx.nn.BatchNorm)(3, "batch", mode="ema")


TREES = {
    "equinox": lambda: eqx.nn.MLP(2, 3, 4, 1, key=jax.random.key(0)),
    "equinox state": batch_norm,
    "flax struct": lambda: Struct(jnp.ones(2), 3),
    "frozen dict": lambda: FrozenDict(a=jnp.ones(2)),
    "linen": linen,
    "train state": train_state,
    "optax": lambda: optax.adam(1e-3).init(linen()),
    "nnx state": lambda: nnx.state(nnx.Linear(2, 3, rngs=nnx.Rngs(0))),
}


@pytest.mark.parametrize("name", TREES)
def test_registered_classes_move_as_trees(name):
    tree = TREES[name]()
    moved = ds.place(tree, GPU)
    assert type(moved) is type(tree)
    assert ds.placement_of(moved).devices == {ds.gpu(1)}
    assert ds.placement_of(tree).devices == {CPU}
    assert jax.tree.structure(moved) == jax.tree.structure(tree)
    for a, b in zip(jax.tree.leaves(tree), jax.tree.leaves(moved), strict=True):
        assert np.array_equal(np.asarray(a), np.asarray(b)) if isinstance(a, jax.Array) else a is b
    assert ds.place(moved, GPU) is moved


def test_a_moved_equinox_module_computes_where_it_is_and_its_leaves_have_names():
    moved = ds.place(TREES["equinox"](), GPU)
    assert ds.device_of(moved(ds.ones(2, device=GPU))) is ds.gpu(1)
    assert "layers.0.weight" in ds.placement_of(moved)
    assert ds.place(Struct(jnp.ones(2), 3), GPU).n == 3


class Net(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(4, 8, rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)
        self.last = nnx.Linear(8, 3, rngs=rngs)
        self.tied = self.first
        self.raw = nnx.data(jnp.ones(3))
        self.layers = nnx.List([nnx.Linear(2, 2, rngs=rngs)])

    def __call__(self, x):
        return self.last(self.drop(nnx.relu(self.norm(self.first(x)))))


X = np.random.default_rng(0).standard_normal((6, 4)).astype("float32")


def create(seed=0):
    net = Net(nnx.Rngs(seed))
    return [net, nnx.Optimizer(net, optax.adam(0.1), wrt=nnx.Param)]


def step(net, optimizer, device):
    x = ds.from_numpy(X, device)
    loss, gradients = nnx.value_and_grad(lambda net: (net(x) ** 2).mean())(net)
    optimizer.update(net, gradients)
    return loss


def weights(net):
    state = nnx.state(net, (nnx.Param, nnx.BatchStat))
    return [np.asarray(leaf) for leaf in jax.tree.leaves(state)]


def test_moving_a_module_does_not_change_its_training():
    net, optimizer = create()
    kernel = net.first.kernel
    alone = create()
    for device in ("cpu", GPU, "gpu:2", GPU):
        assert ds.place([net, optimizer], device)[0] is net
        assert ds.placement_of([net, optimizer]).devices == {ds.device(device)}
        assert ds.device_of(step(net, optimizer, device)) is ds.device(device)
        step(*alone, "cpu")
    assert net.first.kernel is kernel
    assert net.tied is net.first
    for a, b in zip(weights(net), weights(alone[0]), strict=True):
        assert np.array_equal(a, b)


def test_key_paths_include_arrays_outside_variables():
    net, _ = create()
    ds.place({"net": net, "n": 3}, GPU)
    assert {"first.kernel", "norm.mean", "layers.0.bias", "raw", "drop.rngs.key"} <= set(ds.placement_of(net))
    assert ds.device_of(net.raw) is ds.gpu(1)
    with pytest.raises(ds.DeviceNotFoundError):
        ds.place(net, "gpu:9")
    with pytest.raises(ds.CopyNeededError):
        ds.place(net, "cpu", copy=False)
    assert ds.placement_of(net).devices == {ds.gpu(1)}


def test_a_compiled_call_computes_where_the_module_is():
    net, _ = create()
    ds.place(net, GPU)
    assert ds.device_of(nnx.jit(lambda net, x: net(x))(net, ds.from_numpy(X, GPU))) is ds.gpu(1)


def test_a_copy_is_independent():
    net, _ = create()
    twin = ds.copy(net, GPU)
    assert twin is not net
    assert twin.tied is twin.first
    assert ds.placement_of(twin).devices == {ds.gpu(1)}
    assert ds.placement_of(net).devices == {CPU}
    same = ds.copy(net, "cpu")
    places = [each.first.kernel.get_raw_value().unsafe_buffer_pointer() for each in (net, same)]
    assert places[0] != places[1]
    assert [ds.placement_of(each).devices for each in ds.replicate(net, ["gpu:0", GPU])] == [{ds.gpu(0)}, {ds.gpu(1)}]


def test_a_plan_of_a_module_also_places_its_optimizer():
    net, optimizer = create()
    plan = ds.Placement.balanced(net, ["gpu:0", GPU])
    assert plan["first.kernel"] is plan["first.bias"]
    ds.place([net, optimizer], plan)
    there = ds.placement_of([net, optimizer])
    for path, device in plan.items():
        assert there[f"0.{path}"] is device
        assert there.find(f"1.opt_state.0.mu.{path}") in (device, None)
    assert plan.devices == {ds.gpu(0), ds.gpu(1)}


def test_a_checkpoint_restores_a_module_and_its_optimizer(tmp_path):
    saved = create()
    step(*saved, "cpu")
    ds.save(saved, tmp_path / "run.safetensors")
    again = create(seed=1)
    ds.load(tmp_path / "run.safetensors", GPU, into=again)
    assert ds.placement_of(again).devices == {ds.gpu(1)}
    for a, b in zip(weights(saved[0]), weights(again[0]), strict=True):
        assert np.array_equal(a, b)
    assert int(again[1].step.get_value()) == 1


class NormalizedNet(nnx.Module):
    """A module with parameters, statistics and random numbers."""

    def __init__(self, rngs):
        self.linear = nnx.Linear(4, 3, rngs=rngs)
        self.norm = nnx.BatchNorm(3, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        return self.dropout(self.norm(self.linear(x)))


def test_value_and_grad_of_an_nnx_module_is_that_of_flax():
    x = ds.place(jnp.linspace(-1, 1, 24).reshape(6, 4), GPU)
    ours, theirs = (ds.place(NormalizedNet(nnx.Rngs(0)), GPU) for _ in range(2))
    for _ in range(2):
        expected_value, expected = nnx.value_and_grad(lambda m: (m(x) ** 2).sum())(theirs)
        value, grads = ds.value_and_grad(lambda m: (m(x) ** 2).sum())(ours)
        assert np.allclose(value, expected_value, rtol=1e-5)
        assert sorted(grads) == ["linear.bias", "linear.kernel", "norm.bias", "norm.scale"]
        assert np.allclose(grads["linear.kernel"], expected["linear"]["kernel"].get_raw_value(), rtol=1e-4, atol=1e-5)
        assert all(ds.device_of(grad) is ds.gpu(1) for grad in grads.values())
        assert np.allclose(ours.norm.mean.get_raw_value(), theirs.norm.mean.get_raw_value(), rtol=1e-5)
        assert np.asarray(ours.norm.mean.get_raw_value()).any()
    assert ours(x).shape == (6, 3)
