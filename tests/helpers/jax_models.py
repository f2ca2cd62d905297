"""Models and states of flax, equinox and optax, and other trees that programs of JAX make, each for a seed."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import equinox as eqx
import flax.linen as nn
import flax.nnx as nnx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.core import FrozenDict
from flax.training.train_state import TrainState

import devshim as ds


@functools.partial(jax.tree_util.register_dataclass, data_fields=["w", "rest"], meta_fields=["n"])
@dataclasses.dataclass
class Registered:
    w: jax.Array
    rest: dict[str, jax.Array]
    n: int


class LinenNet(nn.Module):
    @nn.compact
    def __call__(self, x, train=True):
        x = nn.BatchNorm(use_running_average=not train)(nn.Dense(4)(x))
        return nn.Dense(3)(nn.Dropout(0.5, deterministic=not train)(nn.relu(x)))


class NnxNet(nnx.Module):
    def __init__(self, rngs):
        self.layers = nnx.List([nnx.Linear(4, 4, rngs=rngs), nnx.Linear(4, 3, rngs=rngs)])
        self.norm = nnx.BatchNorm(4, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        return self.layers[1](self.drop(nnx.relu(self.norm(self.layers[0](x)))))


def mlp(seed=0):
    return eqx.nn.MLP(4, 3, 5, 2, key=jax.random.key(seed))


def tied(seed=0):
    keys = jax.random.split(jax.random.key(seed))
    layers = [eqx.nn.Linear(4, 4, use_bias=False, key=keys[0]), eqx.nn.Linear(4, 4, key=keys[1])]
    return eqx.nn.Shared(eqx.nn.Sequential(layers), lambda m: m[1].weight, lambda m: m[0].weight)


def variables(seed=0):
    keys = {"params": jax.random.key(seed), "dropout": jax.random.key(seed)}
    return LinenNet().init(keys, jnp.ones((1, 4)))


def train_state(seed=0):
    schedule = optax.inject_hyperparams(optax.adamw)(learning_rate=1e-2)
    tx = optax.chain(optax.clip_by_global_norm(1.0), schedule)
    return TrainState.create(apply_fn=LinenNet().apply, params=variables(seed)["params"], tx=tx)


def multi_state(seed=0):
    labels = jax.tree_util.tree_map_with_path(lambda path, _: path[-1].key, variables(seed)["params"])
    parts = dict.fromkeys(["kernel", "scale"], optax.adam(1e-3)) | {"bias": optax.sgd(0.1, momentum=0.9)}
    return optax.multi_transform(parts, labels).init(variables(seed)["params"])


TREES: dict[str, Any] = {
    "equinox": mlp,
    "equinox, tied": tied,
    "equinox, sequential": lambda seed=0: eqx.nn.Sequential([mlp(seed), eqx.nn.Lambda(jax.nn.relu), eqx.nn.Dropout()]),
    "equinox, with state": lambda seed=0: eqx.nn.make_with_state(eqx.nn.BatchNorm)(3, "batch", mode="ema"),
    "equinox, partitioned": lambda seed=0: eqx.partition(mlp(seed), eqx.is_array),
    "linen": variables,
    "frozen": lambda seed=0: FrozenDict(variables(seed)),
    "partitioned": lambda seed=0: {"k": nn.Partitioned(jnp.full((2, 3), seed), names=("in", "out"))},
    "train state": train_state,
    "multi_transform": multi_state,
    "multi steps": lambda seed=0: optax.MultiSteps(optax.adam(1e-3), 2).init(variables(seed)["params"]),
    "nnx state": lambda seed=0: nnx.state(NnxNet(nnx.Rngs(seed))),
    "nnx split": lambda seed=0: nnx.split(NnxNet(nnx.Rngs(seed)), nnx.Param, ...),
    "registered": lambda seed=0: Registered(jnp.full(2, seed), {"a/b": jnp.ones(1), "a.b": jnp.full(1, seed)}, 3),
    "haiku": lambda seed=0: {"mlp/~/linear_0": {"w": jnp.full((2, 2), seed), "b": jnp.zeros(2)}},
    "keys": lambda seed=0: {"typed": jax.random.split(jax.random.key(seed), 2), "old": jax.random.PRNGKey(seed)},
    "other generator": lambda seed=0: {"key": jax.random.key(seed, impl="rbg")},
    "small floats": lambda seed=0: {"w": jnp.full(3, seed, jnp.bfloat16), "n": None, "f": jnp.full(2, seed, jnp.int8)},
}


def arrays(tree):
    """Return the arrays of a tree."""
    return [x for x in jax.tree.leaves(tree) if isinstance(x, jax.Array)]


def numbers(tree):
    """Return the arrays of a tree as NumPy arrays; the data of random keys."""
    found = []
    for x in arrays(tree):
        typed = jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)
        found.append(np.asarray(jax.random.key_data(x) if typed else x))
    return found


def equal(a, b):
    """Return True if two trees have equal arrays of equal dtypes."""
    return all(np.array_equal(x, y) and x.dtype == y.dtype for x, y in zip(numbers(a), numbers(b), strict=True))


def is_there(tree, device="gpu:1"):
    """Return True if all arrays of a tree are on a device."""
    found = arrays(tree)
    return bool(found) and all(ds.device_of(x) is ds.device(device) for x in found)
