"""Tests of checkpoints of flax NNX modules that other libraries load, and of the order of flattened maps."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from keras_kit import filtered, keras_on

import devshim as ds
from devshim.registry import registry

keras_on("jax")

nnx = pytest.importorskip("flax.nnx")
keras = pytest.importorskip("keras")

pytestmark = filtered()

IMAGES = np.random.default_rng(0).normal(size=(3, 8, 8, 2)).astype("float32")


class Net(nnx.Module):
    """A network whose class calls its layers, with attributes that are not in alphabetical order."""

    def __init__(self, flatten: Callable[[Any], Any], inputs: int) -> None:
        rngs = nnx.Rngs(0)
        self.window = nnx.Conv(2, 4, (3, 3), padding="VALID", rngs=rngs)
        self.norm = nnx.BatchNorm(4, momentum=0.9, epsilon=1e-3, rngs=rngs)
        self.grouped = nnx.Conv(4, 6, (2, 2), padding="VALID", feature_group_count=2, use_bias=False, rngs=rngs)
        self.flat_norm = nnx.BatchNorm(inputs, epsilon=1e-3, rngs=rngs)
        self.dense = nnx.Linear(inputs, 5, rngs=rngs)
        self.classes = nnx.Linear(5, 3, rngs=rngs)
        self.flatten = flatten

    def __call__(self, x: Any) -> Any:
        x = nnx.avg_pool(nnx.tanh(self.norm(self.window(x))), (2, 2), (2, 2))
        x = self.flat_norm(self.flatten(self.grouped(x)))
        return self.classes(nnx.relu(self.dense(x)))


def rows(x: Any) -> Any:
    return x.reshape(x.shape[0], -1)


def channels_first(x: Any) -> Any:
    return rows(x.transpose(0, 3, 1, 2))


def of_keras() -> Any:
    """Return the same network in Keras."""
    kl = keras.layers
    return keras.Sequential(
        [
            *(kl.Input((8, 8, 2)), kl.Conv2D(4, 3), kl.BatchNormalization(), kl.Activation("tanh")),
            *(kl.AveragePooling2D(2), kl.Conv2D(6, 2, groups=2, use_bias=False), kl.Flatten()),
            *(kl.BatchNormalization(), kl.Dense(5, activation="relu"), kl.Dense(3)),
        ]
    )


def stirred(model: Any) -> Any:
    """Return a model whose weights and statistics are random and positive."""
    rng = np.random.default_rng(1)
    return ds.assign(
        model,
        {
            path: rng.uniform(0.1, 0.6, x.shape).astype("float32")
            for path, x in ds.leaves(model).items()
            if ds.dtype_of(x) == "float32"
        },
    )


def outputs(model: Any, x: np.ndarray) -> np.ndarray:
    """Return the outputs of a model that predicts."""
    if isinstance(model, nnx.Module):
        model.eval()
        return np.asarray(model(jnp.asarray(x)))
    return np.asarray(model(x, training=False))


def test_a_module_and_a_model_of_keras_exchange_checkpoints(tmp_path: Path) -> None:
    """Both directions: the second model computes what the first one does."""
    module, model = stirred(Net(rows, 24)), of_keras()
    ds.save(module, tmp_path / "module")
    ds.load(tmp_path / "module", into=model)
    np.testing.assert_allclose(outputs(model, IMAGES), outputs(module, IMAGES), rtol=1e-5, atol=1e-5)
    other = Net(rows, 24)
    ds.save(stirred(model), tmp_path / "model")
    ds.load(tmp_path / "model", into=other)
    np.testing.assert_allclose(outputs(other, IMAGES), outputs(model, IMAGES), rtol=1e-5, atol=1e-5)


def test_a_map_that_is_flattened_with_channels_first_is_loaded_in_that_order(tmp_path: Path) -> None:
    model, module = stirred(of_keras()), Net(channels_first, 24)
    ds.save(model, tmp_path / "model")
    ds.load(tmp_path / "model", into=module)
    np.testing.assert_allclose(outputs(module, IMAGES), outputs(model, IMAGES), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("flatten", [lambda x: rows(x.transpose(0, 2, 1, 3)), lambda x: rows(x[:, ::-1]), None])
def test_an_unknown_order_is_refused(flatten: Any, tmp_path: Path) -> None:
    """The rows and columns are exchanged, or the order is reversed, or the module cannot be called with an image."""
    ds.save(stirred(of_keras()), tmp_path / "model")
    module = Net(flatten, 24)
    before = {path: np.array(x) for path, x in ds.leaves(module).items()}
    with pytest.raises(ds.CheckpointError, match="flattened map"):
        ds.load(tmp_path / "model", into=module)
    assert all(np.array_equal(before[path], x) for path, x in ds.leaves(module).items())


def orders(model: Any) -> dict[str, tuple[Any, str]]:
    """Return the axes and the uncertainty of the weight of each layer."""
    found = registry.load("jax").layers(model)
    return {layer.path: (layer.weights["weight"].folded, bool(layer.weights["weight"].unclear)) for layer in found}


def test_the_mean_over_positions_needs_no_order() -> None:
    model = nnx.Sequential(
        nnx.Conv(2, 4, (3, 3), rngs=nnx.Rngs(0)), lambda x: x.mean((1, 2)), nnx.Linear(4, 3, rngs=nnx.Rngs(0))
    )
    assert orders(model) == {"layers.0": (None, False), "layers.2": (None, False)}


def test_a_vector_that_becomes_a_map_is_unclear() -> None:
    model = nnx.Sequential(
        nnx.Linear(2, 32, rngs=nnx.Rngs(0)),
        lambda x: x.reshape(-1, 4, 4, 2),
        nnx.Conv(2, 4, (3, 3), rngs=nnx.Rngs(0)),
        rows,
        nnx.Linear(64, 3, rngs=nnx.Rngs(0)),
    )
    assert orders(model)["layers.0"] == (None, True)


def test_only_the_layers_of_flax_itself_have_a_kind() -> None:
    """A subclass with its own call, and a masked layer, compute something else."""

    class Doubled(nnx.Linear):
        def __call__(self, x: Any) -> Any:
            return 2 * super().__call__(x)

    masked = nnx.Conv(1, 2, (2,), mask=jnp.ones((2, 1, 2)), rngs=nnx.Rngs(0))
    plain = functools.partial(nnx.LayerNorm, 3, rngs=nnx.Rngs(0))
    model = nnx.Sequential(Doubled(2, 3, rngs=nnx.Rngs(0)), masked, plain(), plain(reduction_axes=(-2, -1)))
    assert [layer.kind for layer in registry.load("jax").layers(model)] == ["other", "other", "layer_norm", "other"]


@pytest.mark.parametrize("config", [[1, 2], {"width": 4}], ids=["list", "dict"])
def test_a_module_may_have_attributes_without_a_hash(config: Any) -> None:
    model = nnx.Sequential(nnx.Conv(1, 3, (2,), rngs=nnx.Rngs(0)), rows, nnx.Linear(3 * 16, 2, rngs=nnx.Rngs(0)))
    model.config = nnx.static(config) if hasattr(nnx, "static") else config
    assert orders(model)["layers.2"] == (((2,), (3, 16)), False)


def test_the_mask_of_a_layer_may_be_an_array_of_numpy() -> None:
    masked = nnx.Conv(1, 2, (2,), mask=np.ones((2, 1, 2), "float32"), rngs=nnx.Rngs(0))
    assert [layer.kind for layer in registry.load("jax").layers(nnx.Sequential(masked))] == ["other"]


def test_the_module_is_not_changed() -> None:
    """Its layers are found by calling a clone: counters and statistics stay as they are."""
    model = nnx.Sequential(
        nnx.Conv(2, 4, (3, 3), padding="VALID", rngs=nnx.Rngs(0)),
        nnx.BatchNorm(4, rngs=nnx.Rngs(0)),
        nnx.Dropout(0.5, rngs=nnx.Rngs(0)),
        rows,
        nnx.Linear(4 * 26 * 26, 3, rngs=nnx.Rngs(0)),
    )
    before = {path: np.array(x) for path, x in ds.leaves(model).items() if "key" not in path}
    assert orders(model)["layers.4"] == (((3,), (4, 676)), False)
    assert all(np.array_equal(before[path], x) for path, x in ds.leaves(model).items() if path in before)


def test_the_transfer_guard_of_jax_does_not_matter() -> None:
    """Also for a module of another structure than any before it: the orders of known ones are kept."""
    model = nnx.Sequential(nnx.Conv(1, 3, (2,), rngs=nnx.Rngs(0)), rows, nnx.Linear(3 * 16, 2, rngs=nnx.Rngs(0)))
    with jax.transfer_guard("disallow"):
        first, again = orders(model), orders(model)
    assert first == again == {"layers.0": (None, False), "layers.2": (((2,), (3, 16)), False)}
