"""Flax, equinox and optax on JAX: training after a move, over two GPUs, and data-parallel."""

from __future__ import annotations

import equinox as eqx
import flax.nnx as nnx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax.core import FrozenDict
from jax_models import TREES, LinenNet, NnxNet, arrays, equal, is_there, mlp, train_state, variables

import devshim as ds

pytestmark = pytest.mark.usefixtures("three_cards")
GPU = "gpu:1"
X = np.random.default_rng(0).standard_normal((6, 4)).astype("float32")


@pytest.mark.parametrize("name", TREES)
def test_every_array_of_a_tree_moves_and_nothing_else_changes(name):
    tree = TREES[name]()
    with ds.transfers() as log:
        moved = ds.place(tree, GPU)
    assert log.total_bytes > 0
    assert type(moved) is type(tree)
    assert is_there(moved)
    assert is_there(tree, "cpu")
    assert jax.tree.structure(moved) == jax.tree.structure(tree)
    assert equal(moved, tree)
    others = [[x for x in jax.tree.leaves(each) if not isinstance(x, jax.Array)] for each in (tree, moved)]
    assert all(a is b for a, b in zip(*others, strict=True))
    assert ds.same_device(moved, ds.ones(1, device=GPU))
    assert not ds.same_device(tree, ds.ones(1, device=GPU))


@pytest.mark.parametrize("name", TREES)
def test_copies_and_replicas_are_independent(name):
    tree = ds.place(TREES[name](), GPU)
    for each, device in zip(
        [*ds.replicate(tree, ["gpu:0", GPU]), ds.copy(tree, GPU)], ["gpu:0", GPU, GPU], strict=True
    ):
        assert is_there(each, device)
        assert equal(each, tree)
        assert not any(a is b for a, b in zip(arrays(each), arrays(tree), strict=True))


@pytest.mark.parametrize("name", sorted(set(TREES) - {"registered"}))
def test_leaves_can_be_assigned_by_the_paths_that_name_them(name):
    tree, other = ds.place(TREES[name](), GPU), TREES[name](1)
    found = ds.leaves(tree)
    assert set(found) == set(ds.placement_of(tree))
    assert len(found) == len(arrays(tree))
    assigned = ds.assign(tree, ds.leaves(other))
    assert equal(assigned, other)
    assert is_there(assigned)
    assert jax.tree.structure(assigned) == jax.tree.structure(tree)


def test_two_tensors_of_one_path_are_refused():
    with pytest.raises(ds.ArgumentError, match=r"two tensors have the path 'rest\.a\.b'"):
        ds.leaves({"rest": {"a.b": jnp.ones(1), "a": {"b": jnp.ones(1)}}})


def test_what_is_tied_stays_tied():
    weight = jnp.ones((3, 3))
    moved = ds.place({"embed": {"w": weight}, "head": {"w": weight}}, GPU)
    assert moved["embed"]["w"] is moved["head"]["w"]
    net = NnxNet(nnx.Rngs(0))
    net.again = net.layers[1].kernel
    with ds.transfers() as log:
        ds.place(net, GPU)
    assert net.again is net.layers[1].kernel
    assert sum(record.tensors for record in log.records) == len(ds.leaves(net))


def test_metadata_of_variables_stays():
    param = nnx.Param(jnp.ones((2, 3)), names=("in", "out"), note="kept")
    net = NnxNet(nnx.Rngs(0))
    net.extra = param
    ds.place(net, GPU)
    assert net.extra is param
    assert param.get_metadata()["note"] == "kept"
    assert param.get_metadata()["names"] == ("in", "out")
    state = ds.place(nnx.state(net), "gpu:0")
    assert state["extra"].get_metadata()["note"] == "kept"
    assert ds.place(TREES["partitioned"](), GPU)["k"].names == ("in", "out")


def test_a_state_has_the_paths_of_its_module():
    net = NnxNet(nnx.Rngs(0))
    plan = ds.Placement({"layers.0.*": "gpu:0", "drop.*": "cpu"}, default=GPU)
    graph, state = nnx.split(net)
    assert set(ds.leaves(state)) == set(ds.leaves(net))
    assert ds.placement_of(ds.place(state, plan)) == ds.placement_of(ds.place(net, plan))
    assert is_there(nnx.state(nnx.merge(graph, ds.place(state, GPU))))


# ---------------------------------------------------------------------- training
def equinox_loss(model, x):
    return (jax.vmap(model)(x) ** 2).mean()


def train_equinox(device, gradients, steps=3):
    model, optimizer = ds.place(mlp(), device), optax.adam(0.1)
    state = ds.place(optimizer.init(eqx.filter(model, eqx.is_array)), device)
    for _ in range(steps):
        _, grads = gradients(equinox_loss)(model, ds.from_numpy(X, device))
        assert is_there(grads, device)
        updates, state = optimizer.update(grads, state, eqx.filter(model, eqx.is_array))
        model = eqx.apply_updates(model, updates)
    assert is_there((eqx.filter(model, eqx.is_array), state), device)
    return model


def test_an_equinox_module_trains_with_gradients_of_devshim():
    there, here = train_equinox(GPU, ds.value_and_grad), train_equinox("cpu", eqx.filter_value_and_grad)
    assert equal(there, here)
    assert not equal(there, mlp())


@pytest.mark.parametrize(("name", "call"), [("equinox", lambda m: m), ("equinox, tied", lambda m: m())])
def test_gradients_of_equinox_have_the_structure_of_equinox(name, call):
    model, x = TREES[name](), jnp.ones((2, 4))
    ours, theirs = (
        differentiate(lambda m: equinox_loss(call(m), x))(model)[1]
        for differentiate in (ds.value_and_grad, eqx.filter_value_and_grad)
    )
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    assert equal(ours, theirs)


def train_linen(device, steps=3):
    state, stats = ds.place((train_state(), variables()["batch_stats"]), device)
    key = ds.place(jax.random.key(5), device)

    @jax.jit
    def step(state, stats, key, x):
        def loss(params):
            given = {"params": params, "batch_stats": stats}
            y, changed = state.apply_fn(given, x, mutable=["batch_stats"], rngs={"dropout": key})
            return (y**2).mean(), changed["batch_stats"]

        (_, stats_after), grads = jax.value_and_grad(loss, has_aux=True)(state.params)
        return state.apply_gradients(grads=grads), stats_after

    for i in range(steps):
        state, stats = step(state, stats, jax.random.fold_in(key, i), ds.from_numpy(X, device))
    assert is_there((state, stats), device)
    return state, stats


def test_a_train_state_trains_where_it_is():
    assert equal(train_linen(GPU), train_linen("cpu"))


def train_nnx(device, steps=3):
    net = NnxNet(nnx.Rngs(0))
    optimizer = nnx.Optimizer(net, optax.adam(0.1), wrt=nnx.Param)
    ds.place([net, optimizer], device)
    step = nnx.jit(lambda net, optimizer, x: optimizer.update(net, nnx.grad(lambda net: (net(x) ** 2).mean())(net)))
    for _ in range(steps):
        step(net, optimizer, ds.from_numpy(X, device))
    assert is_there([nnx.state(net), nnx.state(optimizer)], device)
    return nnx.state(net)


def test_an_nnx_module_trains_where_it_is_with_its_streams():
    assert equal(train_nnx(GPU), train_nnx("cpu"))


def test_value_and_grad_of_linen_has_statistics_beside_the_value():
    given = ds.place(FrozenDict(variables()), GPU)
    x, key = ds.place((jnp.asarray(X), jax.random.key(1)), GPU)

    def loss(params):
        both = {"params": params, "batch_stats": given["batch_stats"]}
        y, changed = LinenNet().apply(both, x, mutable=["batch_stats"], rngs={"dropout": key})
        return (y**2).mean(), changed

    found = ds.value_and_grad(loss, has_aux=True)(given["params"])
    assert is_there(found)
    assert equal(found, jax.value_and_grad(loss, has_aux=True)(given["params"]))
    assert type(found[1]) is type(given["params"])


# ---------------------------------------------------------------------- several GPUs
def test_an_equinox_module_trains_over_two_gpus():
    def loss(model, x):
        for layer in model.layers:
            x = jax.vmap(layer)(ds.place(x, ds.device_of(layer.weight)))
        return (x**2).mean()

    optimizer = optax.adam(0.1)
    trained = []
    for plan in (ds.Placement({"layers.0.*": "gpu:0"}, default=GPU), "cpu"):
        model = ds.place(mlp(), plan)
        states = [optimizer.init(layer) for layer in model.layers]
        for _ in range(2):
            _, grads = ds.value_and_grad(loss)(model, ds.from_numpy(X))
            pairs = [optimizer.update(*each) for each in zip(grads.layers, states, model.layers, strict=True)]
            states = [state for _, state in pairs]
            layers = tuple(eqx.apply_updates(*each) for each in zip(model.layers, (u for u, _ in pairs), strict=True))
            model = eqx.tree_at(lambda m: m.layers, model, layers)
        trained.append(model)
    assert equal(*trained)
    assert {ds.device_of(x) for x in arrays(trained[0].layers[0])} == {ds.gpu(0)}
    assert {ds.device_of(x) for x in arrays(trained[0].layers[1:])} == {ds.gpu(1)}


def test_an_nnx_module_has_gradients_over_two_gpus():
    net = NnxNet(nnx.Rngs(0))
    ds.place(net, ds.Placement({"layers.0.*": "gpu:0"}, default=GPU))
    with pytest.raises(ds.DeviceMismatchError):
        net(ds.from_numpy(X, "gpu:0"))

    def loss(net):
        hidden = net.layers[0](ds.from_numpy(X, "gpu:0"))
        return (net.layers[1](ds.place(hidden, GPU)) ** 2).mean()

    _, grads = ds.value_and_grad(loss)(net)
    assert ds.device_of(grads["layers.0.kernel"]) is ds.gpu(0)
    assert ds.device_of(grads["layers.1.kernel"]) is ds.gpu(1)


@pytest.mark.parametrize("make", [mlp, lambda: variables()["params"]], ids=["equinox", "linen"])
def test_gradients_of_parts_of_a_batch_are_those_of_the_batch(make):
    def loss(model, x):
        if isinstance(model, eqx.Module):
            return equinox_loss(model, x)
        return (jnp.tanh(x @ model["Dense_0"]["kernel"]) ** 2).mean()

    model = ds.place(make(), GPU)
    value, grads = ds.data_parallel(ds.value_and_grad(loss), ["gpu:0", GPU])(model, ds.from_numpy(X, GPU))
    expected, expected_grads = ds.value_and_grad(loss)(model, ds.from_numpy(X, GPU))
    assert is_there((value, grads))
    assert np.allclose(value, expected, rtol=1e-5)
    assert jax.tree.structure(grads) == jax.tree.structure(expected_grads)
    for a, b in zip(arrays(grads), arrays(expected_grads), strict=True):
        assert np.allclose(a, b, rtol=1e-4, atol=1e-6)


def test_random_keys_split_and_gather():
    keys = jax.random.split(jax.random.key(0), 5)
    parts = ds.split(ds.place({"keys": keys}, GPU), ["gpu:0", GPU])
    assert [part["keys"].shape for part in parts] == [(3,), (2,)]
    gathered = ds.gather(parts, GPU)
    assert is_there(gathered)
    assert equal(gathered, {"keys": keys})
    assert np.array_equal(jax.random.normal(gathered["keys"][4], (3,)), jax.random.normal(keys[4], (3,)))
