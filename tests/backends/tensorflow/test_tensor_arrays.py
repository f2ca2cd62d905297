"""Tests of `tf.TensorArray` in trees: in eager code it is a container of the tensors that were written to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import devshim as ds


@pytest.fixture(autouse=True)
def _cards() -> Iterator[None]:
    ds.use("tensorflow")
    with ds.simulate(2):
        yield


def written(**options: Any) -> Any:
    """Return an array of three, of which the second was not written."""
    array = tf.TensorArray(tf.float32, size=3, **options)
    return array.write(0, ds.ones(2, dtype="float32")).write(2, ds.zeros(2, dtype="float32"))


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: {"a": [x]}], ids=["alone", "in a tree"])
def test_the_tensors_move_and_the_given_array_stays(wrap: Any) -> None:
    array = written()
    moved = ds.place(wrap(array), "gpu:1")
    moved = moved["a"][0] if isinstance(moved, dict) else moved
    assert isinstance(moved, tf.TensorArray)
    assert set(ds.placement_of(wrap(array)).devices) == {ds.cpu()}
    assert [ds.device_of(moved.read(i)) for i in (0, 2)] == [ds.gpu(1)] * 2
    with pytest.raises(tf.errors.InvalidArgumentError, match="cleared after a previous read"):
        moved.read(0)  # the original has a record of its own
    assert array.read(0).numpy().tolist() == [1, 1]


def test_an_array_on_the_device_is_the_same_object() -> None:
    array = written()
    assert ds.place([array], "cpu")[0] is array


def test_its_options_are_kept() -> None:
    moved = ds.place(written(clear_after_read=False, dynamic_size=True), "gpu:0")
    assert np.array_equal(moved.read(0), moved.read(0))
    assert ds.device_of(moved.write(5, ds.ones(2, dtype="float32", device=0)).read(5)) is ds.gpu(0)


def test_gradients_flow() -> None:
    x = tf.Variable([1.0, 2.0])
    with tf.GradientTape() as tape:
        array = ds.place(tf.TensorArray(tf.float32, size=1).write(0, x * 3), "gpu:1")
        loss = tf.reduce_sum(array.read(0))
    assert tape.gradient(loss, x).numpy().tolist() == [3, 3]


def test_they_are_saved_and_loaded(tmp_path: Path) -> None:
    array = written()
    assert list(ds.leaves({"a": array})) == ["a.0", "a.2"]
    ds.save({"a": array}, tmp_path / "x")
    loaded = ds.load(tmp_path / "x", "gpu:1", into={"a": written()})["a"]
    assert ds.to_numpy(loaded.read(2)).tolist() == [0, 0]
