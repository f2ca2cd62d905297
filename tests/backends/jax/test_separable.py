"""Containers whose arrays cannot be cut, joined or summed separately; and those for which that is right."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax.training.train_state import TrainState
from jax.experimental import sparse

import devshim as ds

pytestmark = pytest.mark.usefixtures("three_cards")
GPUS = ["gpu:0", "gpu:1"]

CALLS = {
    "split": lambda x: ds.split({"a": x}, GPUS),
    "gather": lambda x: ds.gather([x, x], "gpu:1"),
    "all_reduce_": lambda x: ds.all_reduce_([[ds.place(x, "gpu:0")], [ds.place(x, "gpu:1")]]),
}


@jax.tree_util.register_pytree_node_class
class Normal:
    """A distribution, as numpyro writes them: the shape is static data."""

    def __init__(self, loc: Any, scale: Any) -> None:
        self.loc, self.scale, self.batch_shape, self.event_shape = loc, scale, loc.shape[:1], loc.shape[1:]

    def tree_flatten(self) -> Any:
        return (self.loc, self.scale), {"batch_shape": self.batch_shape, "event_shape": self.event_shape}

    @classmethod
    def tree_unflatten(cls, static: Any, children: Any) -> Any:
        new = object.__new__(cls)
        new.loc, new.scale = children
        vars(new).update(static)
        return new


@functools.partial(jax.tree_util.register_dataclass, data_fields=["x", "y"], meta_fields=["classes", "size"])
@dataclass
class Batch:
    x: Any
    y: Any
    classes: int
    size: tuple[int, int] = (2, 2)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", ["BCOO", "BCSR", "COO", "CSR", "CSC"])
def test_sparse_arrays_are_refused(name: str, call: str) -> None:
    """Their indices would be summed, cut or joined like values."""
    matrix = getattr(sparse, name).fromdense(jnp.diag(jnp.arange(1.0, 5.0)))
    with pytest.raises(ds.UnsupportedError, match=rf"ds\.{call} cannot \w+ objects of the class {name}: .*indices"):
        CALLS[call](matrix)
    assert (ds.place(matrix, "gpu:1").todense().diagonal() == ds.asarray([1.0, 2, 3, 4], device="gpu:1")).all()


@pytest.mark.parametrize("call", ["split", "gather"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_a_class_whose_static_data_has_the_shape_is_neither_cut_nor_joined(call: str, axis: int) -> None:
    made = Normal(jnp.zeros((4, 6)), jnp.ones((4, 6)))
    with pytest.raises(ds.UnsupportedError, match=rf"static data has the shape \({'4' if axis == 0 else '6'},\)"):
        ds.split([made], GPUS, axis=axis) if call == "split" else ds.gather([[made], [made]], "cpu", axis)


@pytest.mark.parametrize("call", ["split", "gather"])
def test_a_layer_is_neither_cut_nor_joined(call: str) -> None:
    layer = eqx.nn.Linear(4, 4, key=jax.random.key(0))
    with pytest.raises(ds.UnsupportedError, match=r"class Linear: .* static data has the number 4, which would stay"):
        CALLS[call](layer)
    parts = ds.split(ds.leaves(layer), GPUS)  # the line of the hint
    assert parts[1]["weight"].shape == (2, 4)


def test_gradients_of_layers_and_other_trees_are_summed() -> None:
    layer, made = eqx.nn.Linear(4, 4, key=jax.random.key(0)), Normal(jnp.zeros(4), jnp.ones(4))
    state = optax.adam(0.1).init(eqx.filter(layer, eqx.is_array))
    full = jax.tree.map(jnp.ones_like, state)
    params = {"w": jnp.ones(2)}
    train = TrainState.create(apply_fn=None, params=params, tx=optax.sgd(0.1))
    first, second = ds.all_reduce_([ds.place((layer, made, full, train), gpu) for gpu in GPUS])
    assert (first[0].weight == 2 * ds.place(layer.weight, "gpu:0")).all()
    assert first[1].scale.tolist() == [2, 2, 2, 2]
    assert second[1].batch_shape == (4,)
    assert second[2][0].mu.bias.tolist() == [2, 2, 2, 2]
    assert second[3].params["w"].tolist() == [2, 2]


def test_layers_that_are_stacked_are_cut_and_joined() -> None:
    """The new axis is not in the static data, even if its length is."""
    make = eqx.filter_vmap(lambda key: eqx.nn.MLP(3, 2, 8, 1, key=key))
    layers = make(jax.random.split(jax.random.key(0), 4))
    parts = ds.split(layers, GPUS)
    assert [part.layers[1].weight.shape for part in parts] == [(2, 2, 8), (2, 2, 8)]
    assert eqx.tree_equal(ds.gather(parts, "cpu"), layers)


def test_numbers_in_an_object_of_data_are_in_every_part() -> None:
    """They are like numbers in a dict."""
    batch = Batch(jnp.arange(20.0).reshape(10, 2), jnp.arange(10), classes=10)
    parts = ds.split(batch, GPUS)
    assert [(len(part.x), part.classes) for part in parts] == [(5, 10), (5, 10)]
    assert np.array_equal(ds.to_numpy(ds.gather(parts, "cpu").x), batch.x)
