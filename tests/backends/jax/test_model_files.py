"""Checkpoints of flax, equinox and optax on JAX, and of trees by key path, from and to other programs."""

from __future__ import annotations

import functools
from pathlib import Path

import equinox as eqx
import flax.nnx as nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.core import FrozenDict
from jax_models import TREES, NnxNet, equal, is_there, mlp, numbers, train_state, variables
from safetensors.numpy import load_file, save_file

import devshim as ds

pytestmark = pytest.mark.usefixtures("three_cards")
GPU = "gpu:1"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "saved.safetensors"


@pytest.mark.parametrize("name", TREES)
def test_a_tree_is_restored_into_its_classes(name, path):
    tree, into = ds.place(TREES[name](1), GPU), TREES[name]()
    ds.save(tree, path)
    loaded = ds.load(path, GPU, into=into)
    assert type(loaded) is type(tree)
    assert jax.tree.structure(loaded) == jax.tree.structure(into)
    assert equal(loaded, tree)
    assert is_there(loaded)


@pytest.mark.parametrize("name", TREES)
def test_without_into_there_are_the_arrays(name, path):
    tree = TREES[name](1)
    ds.save(tree, path)
    loaded = ds.load(path, GPU)
    assert is_there(list(ds.leaves(loaded).values()) if name != "registered" else loaded.w)
    if name != "registered":
        assert sorted(ds.leaves(loaded)) == sorted(ds.leaves(tree))


def test_code_is_not_in_the_file_and_stays_in_the_object(path):
    ds.save(mlp(), path)
    assert sorted(load_file(path)) == sorted(ds.leaves(mlp()))
    assert ds.load(path).activation is None
    other = eqx.nn.MLP(4, 3, 5, 2, activation=jnp.tanh, key=jax.random.key(1))
    assert ds.load(path, into=other).activation is other.activation
    with pytest.raises(ds.ArgumentError, match=r"\['loss'\] is of type function"):
        ds.save({"model": mlp(), "loss": lambda x: x}, path)
    with pytest.raises(ds.CheckpointError, match=r"'activation'\].* would be replaced"):
        ds.load(path, into=eqx.tree_at(lambda m: m.activation, mlp(), 3))


def test_code_that_holds_arrays_is_refused(path):
    model = eqx.tree_at(lambda m: m.activation, mlp(), functools.partial(jnp.add, jnp.ones(1)))
    with pytest.raises(ds.ArgumentError, match=r"\['activation'\] is of type partial"):
        ds.save(model, path)
    assert not path.exists()


def test_streams_of_random_numbers_go_on(path):
    net, other = NnxNet(nnx.Rngs(0)), NnxNet(nnx.Rngs(1))
    ds.place(net, GPU)
    x = ds.ones((6, 4), dtype="float32", device=GPU)
    net(x)
    ds.save(net, path)
    ds.load(path, GPU, into=other)
    assert np.array_equal(net(x), other(x))
    key = ds.place(jax.random.key(3), GPU)
    ds.save(key, path)
    assert np.array_equal(jax.random.normal(ds.load(path, GPU), (3,)), jax.random.normal(key, (3,)))


def test_a_module_without_streams_takes_a_file_with_them_and_the_reverse(path):
    net = NnxNet(nnx.Rngs(0))
    ds.save(net, path)
    weights = {name: x for name, x in ds.leaves(net).items() if not name.startswith("drop.")}
    fixed = NnxNet(nnx.Rngs(1))
    fixed.drop = nnx.Dropout(0.5)
    ds.load(path, into=fixed)
    assert equal(ds.leaves(fixed), weights)
    save_file({name: np.asarray(x) for name, x in weights.items()}, path)
    other = NnxNet(nnx.Rngs(1))
    before = numbers(other.drop.rngs.key.get_value())
    ds.load(path, into=other)
    assert np.array_equal(other.layers[0].kernel, net.layers[0].kernel)
    assert np.array_equal(numbers(other.drop.rngs.key.get_value()), before)


def test_keys_are_data_on_other_frameworks_and_of_one_generator(path):
    keys = TREES["keys"](1)
    ds.save({**keys, "other": jax.random.key(0, impl="rbg")}, path)
    with ds.using("numpy"):
        there = ds.load(path)
    assert np.array_equal(there["typed"], jax.random.key_data(keys["typed"]))
    assert there["other"].shape == (4,)
    raw = jnp.zeros((2, 2), jnp.uint32)
    assert np.array_equal(ds.load(path, into={"typed": raw, "old": raw[0], "other": None})["typed"], there["typed"])
    with pytest.raises(ds.CheckpointError, match=r"at \['other'\] a tensor is key<fry> .*the data of a key of rbg"):
        ds.load(path, into={**keys, "other": jax.random.key(0)})


def test_the_names_in_the_file_are_the_key_paths(path):
    tree = train_state()
    ds.save(tree, path)
    assert sorted(load_file(path)) == sorted(ds.leaves(tree))
    assert {"params.Dense_0.kernel", "opt_state.1.hyperparams.learning_rate"} <= set(ds.leaves(tree))
    ds.save(mlp(), path)
    assert "layers.0.weight" in load_file(path)
    ds.save({"a.b": jnp.ones(1), "a": {"b": jnp.zeros(1)}}, path)
    assert sorted(load_file(path)) == ["a.b", "a.b#2"]
    twice = {"a": {"b": jnp.ones(1)}, "a.b": jnp.ones(1)}
    assert ds.load(path, into=twice)["a.b"].tolist() == [1]


# ---------------------------------------------------------------------- by key path
def flat(tree):
    return {name: np.asarray(x) for name, x in ds.leaves(tree).items()}


NAMED = {
    "equinox": mlp,
    "linen": variables,
    "frozen": lambda seed=0: FrozenDict(variables(seed)),
    "train state": train_state,
    "multi_transform": TREES["multi_transform"],
    "haiku": TREES["haiku"],
}


@pytest.mark.parametrize("name", NAMED)
def test_a_flat_file_of_another_program_fills_a_tree(name, path):
    tree, into = NAMED[name](1), NAMED[name]()
    save_file(flat(tree), path)
    loaded = ds.load(path, GPU, into=into)
    assert jax.tree.structure(loaded) == jax.tree.structure(into)
    assert equal(loaded, tree)
    assert is_there(loaded)


@pytest.mark.parametrize("name", NAMED)
def test_the_file_of_a_tree_fills_a_flat_dict(name, path):
    tree = NAMED[name](1)
    ds.save(ds.leaves(tree), path)
    assert equal(ds.load(path, into=NAMED[name]()), tree)
    if name == "train state":
        tree = tree.params  # the step number has no place among tensors
    ds.save(tree, path)
    wanted = {name: np.zeros_like(x) for name, x in flat(tree).items()}
    loaded = ds.load(path, into=wanted)
    assert list(loaded) == list(wanted)
    assert all(type(x) is np.ndarray and np.array_equal(x, flat(tree)[name]) for name, x in loaded.items())


def test_a_module_a_state_and_a_dict_of_nnx_have_the_same_files(path):
    net = NnxNet(nnx.Rngs(1))
    forms = {
        "module": lambda net: net,
        "state": nnx.state,
        "dict": lambda net: nnx.to_pure_dict(nnx.state(net)),
        "flat": ds.leaves,
    }
    for save in forms.values():
        ds.save(save(net), path)
        for into in forms.values():
            loaded = ds.load(path, GPU, into=into(NnxNet(nnx.Rngs(0))))
            found = ds.leaves(loaded)
            assert sorted(found) == sorted(ds.leaves(net))
            assert all(np.array_equal(numbers(found[name]), numbers(x)) for name, x in ds.leaves(net).items())
            assert {ds.device_of(x) for x in found.values()} == {ds.gpu(1)}


def test_parameters_are_taken_from_a_train_state(path):
    state = train_state(1)
    into = {"params": train_state().params, "opt_state": None}
    ds.save(state, path)
    assert equal(ds.load(path, into={**into, "step": 0})["params"], state.params)
    save_file(flat(state), path)
    assert equal(ds.load(path, into=into)["params"], state.params)


UNFIT = {
    "missing": (lambda x: x.pop("params.Dense_0.kernel"), r"the file lacks 'params\.Dense_0\.kernel'\n"),
    "more": (lambda x: x.update({"params.new": x["params.Dense_0.bias"]}), r"it also has 'params\.new'\n"),
    "renamed": (
        lambda x: x.update(weight=x.pop("params.Dense_1.kernel")),
        r"the file lacks 'params\.Dense_1\.kernel' and it also has 'weight'\n",
    ),
    "shape": (
        lambda x: x.update({"params.Dense_0.bias": np.ones(5, "f4")}),
        r"at \['params'\]\['Dense_0'\]\['bias'\] a tensor is float32 of shape \(4,\), and in the file .* \(5,\)\n",
    ),
    "dtype": (
        lambda x: x.update({"params.Dense_0.bias": np.ones(4, "f8")}),
        r"at \['params'\]\['Dense_0'\]\['bias'\] a tensor is float32 .* in the file float64",
    ),
}


@pytest.mark.parametrize("name", UNFIT)
def test_a_file_that_does_not_fit_changes_nothing(name, path):
    change, message = UNFIT[name]
    tree = variables()
    before, given = flat(tree), flat(variables(1))
    change(given)
    save_file(given, path)
    with ds.transfers() as log, pytest.raises(ds.CheckpointError, match=message):
        ds.load(path, GPU, into=tree)
    assert log.count == 0
    assert equal(flat(tree), before)


def test_paths_that_are_ambiguous_are_refused(path):
    save_file({"a.b": np.ones(1), "c.d": np.ones(1)}, path)
    with pytest.raises(ds.CheckpointError, match="does not fit"):
        ds.load(path, into={"a": {"b": jnp.ones(1)}, "a.b": jnp.ones(1)})
