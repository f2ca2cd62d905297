"""Tests of weights that cross between frameworks: saved by one, loaded into another's equal model, with equal outputs.

The models are in ``equal_models.py``, beside this file; each of PyTorch, Keras, Gluon and Paddle saves and loads each.
"""

from __future__ import annotations

import itertools
import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import devshim as ds
from devshim.registry.registry import load

MODELS = Path(__file__).with_name("equal_models.py")
EQUAL = runpy.run_path(str(MODELS))
MAKE, GIVES, INPUTS, NAMES = EQUAL["MAKE"], EQUAL["GIVES"], EQUAL["INPUTS"], EQUAL["NAMES"]
FRAMEWORKS = EQUAL["FRAMEWORKS"]


@pytest.fixture(scope="module", autouse=True)
def _all_loaded() -> None:
    """Load all of them here, before Keras is imported directly: devshim takes care of the required order."""
    for name in FRAMEWORKS:
        with ds.using(name):
            ds.zeros((1,))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], tuple[Path, np.ndarray]]:
    """Return a function that saves a framework's model once, and returns the file and the model's output."""
    folder = tmp_path_factory.mktemp("checkpoints")
    known: dict[tuple[str, str], tuple[Path, np.ndarray]] = {}

    def make(framework: str, name: str) -> tuple[Path, np.ndarray]:
        if (framework, name) not in known:
            model = stirred(framework, name)
            path = folder / f"{framework}, {name}"
            ds.save(model, path)
            known[framework, name] = path, GIVES[framework](model, INPUTS[name])
        return known[framework, name]

    return make


def stirred(framework: str, name: str) -> Any:
    model = MAKE[framework](name)
    EQUAL["stir"](load(framework), model)
    return model


def state(framework: str, model: Any) -> dict[str, bytes]:
    return {leaf.path: ds.to_numpy(leaf.read()).tobytes() for leaf in load(framework).leaves(model)}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("source", "target"), list(itertools.product(FRAMEWORKS, repeat=2)))
def test_the_outputs_are_the_same(saved: Any, source: str, target: str, name: str) -> None:
    path, expected = saved(source, name)
    model = stirred(target, name) if target != source else MAKE[target](name)
    assert ds.load(path, into=model) is model
    found = GIVES[target](model, INPUTS[name])
    assert found.shape == expected.shape
    assert float(np.std(expected)) > 1e-3  # it depends on its input
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


CARDS = """
import itertools, os, runpy, sys
import numpy as np
import devshim as ds
from devshim.registry.registry import load

for framework in {frameworks!r}:
    with ds.using(framework):
        ds.zeros((1,), device="gpu:1")
equal = runpy.run_path({models!r})
for name, source in itertools.product({names!r}, {frameworks!r}):
    model, x = equal["MAKE"][source](name), equal["INPUTS"][name]
    equal["stir"](load(source), model)
    expected = equal["GIVES"][source](model, x)
    ds.save(ds.place(model, "gpu:0"), path := os.path.join({folder!r}, "crossing"))
    for target in {frameworks!r}:
        model = equal["MAKE"][target](name)
        ds.load(path, "gpu:1", into=model)
        assert set(ds.placement_of(model).devices) == {{ds.gpu(1)}}, (source, target)
        found = equal["GIVES"][target](ds.place(model, "cpu"), x)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5, err_msg=f"{{source}} {{target}}")
print("crossed")
"""


def test_they_cross_from_card_to_card(tmp_path: Path) -> None:
    """They are saved on one simulated GPU and loaded directly onto another, in a process that starts with GPUs."""
    names = NAMES[1:4:2]
    code = CARDS.format(frameworks=FRAMEWORKS, models=str(MODELS), names=names, folder=str(tmp_path))
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore", "DEVSHIM_SIMULATE_GPUS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **quiet},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "crossed" in done.stdout, done.stderr[-3000:]


# ---------------------------------------------------------------------- files that do not match
@pytest.mark.parametrize("target", FRAMEWORKS)
def test_other_layers_are_refused_and_named(saved: Any, target: str) -> None:
    source = FRAMEWORKS[FRAMEWORKS.index(target) - 1]
    path, _ = saved(source, "group norm and depthwise")
    model = stirred(target, "mlp with batch norm")
    before = state(target, model)
    with pytest.raises(
        ds.CheckpointError, match=r"the file's 4 layers are .*\(conv\).*; the model's 3 are .*\(linear\)"
    ):
        ds.load(path, into=model)
    assert state(target, model) == before


def keras_layers() -> Any:
    import keras

    return keras.layers


def test_another_epsilon_and_another_order_are_refused(saved: Any) -> None:
    import keras

    kl = keras_layers()
    path, _ = saved("torch", "mlp with batch norm")
    for layers, reported in (
        ([kl.Dense(6), kl.BatchNormalization(), kl.Dense(3, use_bias=False)], "epsilon is 0.001 here and 1e-05 in the"),
        ([kl.BatchNormalization(epsilon=1e-5), kl.Dense(6), kl.Dense(3)], "'0' .*they are of different kinds"),
        ([kl.Dense(7), kl.BatchNormalization(epsilon=1e-5), kl.Dense(3, use_bias=False)], r"\(6, 7\).*\(6, 6\)"),
        ([kl.Dense(6), kl.BatchNormalization(epsilon=1e-5), kl.Dense(3)], "one has bias, weight, the other weight"),
    ):
        model = keras.Sequential([kl.Input((6,)), *layers])
        before = state("tensorflow", model)
        with pytest.raises(ds.CheckpointError, match=reported):
            ds.load(path, into=model)
        assert state("tensorflow", model) == before


def test_features_of_an_unknown_order_are_refused_both_ways(saved: Any, tmp_path: Path) -> None:
    """The shapes agree, but the numbers would be wrong: Keras's graph does not show what a ``Lambda`` does."""
    import keras
    import tensorflow as tf

    kl = keras_layers()

    def make() -> Any:
        return keras.Sequential(
            [
                *(kl.Input((9, 12, 3)), kl.Conv2D(4, 3, activation="relu"), kl.BatchNormalization()),
                *(kl.MaxPooling2D(), kl.Conv2D(6, 2, groups=2), kl.Lambda(lambda x: tf.reshape(x, (-1, 48)), (48,))),
                *(kl.BatchNormalization(epsilon=1e-5), kl.Dense(5, activation="sigmoid"), kl.Dense(2)),
            ]
        )

    name = "convolutions, flattened"
    model, other = make(), make()
    before = state("tensorflow", model)
    with pytest.raises(ds.CheckpointError, match="the order cannot be determined in this model") as caught:
        ds.load(saved("torch", name)[0], into=model)
    assert "by hand" in str(caught.value)
    assert state("tensorflow", model) == before
    ds.save(model, tmp_path / "unclear")
    with pytest.raises(ds.CheckpointError, match="the order cannot be determined in this model"):
        ds.load(tmp_path / "unclear", into=MAKE["torch"](name))
    ds.load(tmp_path / "unclear", into=other)
    assert state("tensorflow", other) == before


def test_equal_names_are_not_taken_for_equal_layouts(tmp_path: Path) -> None:
    """PyTorch and Paddle both use ``0.weight``, with transposed layouts: for a square weight the shapes agree."""
    import paddle
    import torch

    mine, theirs = torch.nn.Sequential(torch.nn.Linear(3, 3)), paddle.nn.Sequential(paddle.nn.Linear(3, 3))
    ds.save(mine, tmp_path / "square")
    ds.load(tmp_path / "square", into=theirs)
    assert np.array_equal(theirs[0].weight.numpy(), mine[0].weight.detach().numpy().T)
