"""NumPy scalars passed directly count as NumPy's 0-d arrays; in a tree they are numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import devshim as ds

SCALARS = [np.float32(3), np.float64(3), np.int64(3), np.bool_(True), np.complex64(3j)]


@pytest.fixture(autouse=True)
def on_numpy() -> Iterator[None]:
    with ds.using("numpy"), ds.simulate(2):
        yield


@pytest.mark.parametrize("value", SCALARS, ids=lambda value: type(value).__name__)
def test_each_call_takes_a_scalar(value: Any) -> None:
    assert ds.device_of(value) is ds.cpu()
    assert ds.dtype_of(value) == value.dtype.name
    read = ds.to_numpy(value)
    assert (read.shape, read.dtype, read[()]) == ((), value.dtype, value)
    assert ds.stop_gradient(value) is value
    assert ds.zeros(2, like=value).dtype == value.dtype
    for to in ("gpu:1", ds.Placement(default="gpu:1")):
        moved = ds.place(value, to)
        assert (ds.device_of(moved), moved.shape, moved[()]) == (ds.gpu(1), (), value)
    assert ds.place(value, "cpu") is value
    assert ds.copy(value, "cpu")[()] == value


def test_a_copy_that_is_not_allowed_is_refused() -> None:
    with pytest.raises(ds.CopyNeededError):
        ds.place(np.float32(1), "gpu:1", copy=False)
    with pytest.raises(ds.DeviceNotFoundError):
        ds.place(np.float32(1), "gpu:7")


@pytest.mark.parametrize("value", [np.str_("a"), np.datetime64("2020-01-01"), np.bytes_(b"a")])
def test_a_scalar_that_is_not_a_number_is_refused(value: Any) -> None:
    for call in (ds.device_of, ds.to_numpy, ds.namespace, ds.dtype_of, ds.stop_gradient, lambda x: ds.place(x, "cpu")):
        with pytest.raises(ds.NotATensorError):
            call(value)


def test_a_scalar_in_a_tree_is_a_number() -> None:
    rate = np.float32(0.1)
    tree = {"x": np.ones(2), "rate": rate}
    assert ds.place(tree, "gpu:1")["rate"] is rate
    assert list(ds.leaves(tree)) == ["x"]
    assert all(part["rate"] is rate for part in ds.split(tree, ["cpu", "cpu"]))


def test_scalars_are_joined_as_other_frameworks_join_0d_tensors() -> None:
    for parts in ([np.float32(1), np.float32(2)], [np.ones(1).sum(), np.full(2, 1.0).sum()]):
        joined = ds.gather(parts, "cpu")
        assert (joined.tolist(), joined.dtype) == ([1, 2], parts[0].dtype)
        assert ds.device_of(ds.gather(parts, "gpu:1")) is ds.gpu(1)
    assert ds.gather([np.float32(1), np.asarray(np.float32(2))], "cpu").tolist() == [1, 2]


@pytest.mark.parametrize("loss", [(np.ones(3).sum(), np.asarray(4.0)), (np.asarray(3.0), np.float64(4))])
def test_a_scalar_beside_an_array_is_joined_in_a_tree(loss: tuple[Any, Any]) -> None:
    joined = ds.gather([{"loss": each, "name": "a"} for each in loss], "gpu:1")
    assert ds.to_numpy(joined["loss"]).tolist() == [3, 4]
    assert (ds.device_of(joined["loss"]), joined["name"]) == (ds.gpu(1), "a")


@pytest.mark.parametrize("target", ["cpu", "gpu:1"])
@pytest.mark.parametrize("value", SCALARS, ids=lambda value: type(value).__name__)
def test_gather_is_the_inverse_of_split_for_trees_with_scalars(value: Any, target: str) -> None:
    tree = {"x": ds.asarray([1.0, 2.0]), "rate": value, "list": [value, 2.5]}
    back = ds.gather(ds.split(tree, ["cpu", "gpu:1"]), target)
    assert ds.to_numpy(back["x"]).tolist() == [1, 2]
    assert back["rate"] is value
    assert back["list"] == [value, 2.5]
    assert type(back["list"][0]) is type(value)


def test_scalars_that_differ_in_trees_are_refused_as_other_numbers_are() -> None:
    for first, second in ((1.0, 2.0), (np.float32(1), np.float32(2)), (np.float32(1), np.float64(1))):
        with pytest.raises(ds.ArgumentError, match=r"ds\.gather keeps .*, and at \['loss'\] part 1"):
            ds.gather([{"loss": first}, {"loss": second}], "cpu")
