"""Tests of loading by key path: files and trees whose structures differ and whose paths agree."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import devshim as ds


@dataclass
class Net:
    w: Any
    inner: Any = None
    act: Any = abs


Pair = namedtuple("Pair", "a b")


class Marker:
    """An object that only marks a place."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "saved.safetensors"


@pytest.fixture(autouse=True)
def numpy() -> Any:
    with ds.using("numpy"):
        yield


def one(value: float) -> np.ndarray:
    return np.full(2, value, "f4")


FORMS = {
    "dicts": lambda v: {"w": one(v), "inner": {"a": one(v + 1), "b": one(v + 2)}},
    "flat": lambda v: {"inner.b": one(v + 2), "w": one(v), "inner.a": one(v + 1)},
    "half flat": lambda v: {"w": one(v), "inner.a": one(v + 1), "inner": {"b": one(v + 2)}},
    "classes": lambda v: Net(one(v), Pair(one(v + 1), one(v + 2))),
}


@pytest.mark.parametrize("into", FORMS)
@pytest.mark.parametrize("saved", FORMS)
def test_every_form_loads_into_every_other(saved: str, into: str, path: Path) -> None:
    given = FORMS[into](0)
    ds.save(FORMS[saved](5), path)
    loaded = ds.load(path, into=given)
    assert type(loaded) is type(given)
    assert {name: x[0] for name, x in ds.leaves(loaded).items()} == {"w": 5, "inner.a": 6, "inner.b": 7}
    assert all(x[0] < 3 for x in ds.leaves(given).values())
    if into == "classes":
        assert loaded.act is abs


def test_numbers_are_matched_too(path: Path) -> None:
    ds.save({"net.w": one(1), "epoch": 7}, path)
    assert ds.load(path, into={"net": {"w": one(0)}, "epoch": 0})["epoch"] == 7
    with pytest.raises(ds.CheckpointError, match="also has 'epoch'"):
        ds.load(path, into={"net": {"w": one(0)}})
    save_file({"net.w": one(1)}, path)
    loaded = ds.load(path, into={"net": {"w": one(0)}, "epoch": 3, "name": "run"})
    assert (loaded["epoch"], loaded["name"]) == (3, "run")


def test_none_skips_what_is_below_it(path: Path) -> None:
    save_file({"net.w": one(1), "net.more.b": one(1), "other": one(2)}, path)
    assert ds.load(path, into={"net": None, "other": one(0)})["other"][0] == 2
    with pytest.raises(ds.CheckpointError, match=r"also has 'net\.more\.b', 'net\.w'"):
        ds.load(path, into={"ne": None, "x": {"y": one(0)}, "other": one(0), "a.b": one(0)})


def test_a_path_that_occurs_twice_matches_nothing(path: Path) -> None:
    twice = {"a": {"b": one(1)}, "a.b": one(2)}
    ds.save(twice, path)
    assert ds.load(path, into=twice)["a.b"][0] == 2
    for into in ({"a.b": one(0)}, {"a": {"b": one(0)}}):
        with pytest.raises(ds.CheckpointError, match="does not fit"):
            ds.load(path, into=into)
    save_file({"a.b": one(1), "c": one(2)}, path)
    with pytest.raises(ds.CheckpointError, match="does not fit"):
        ds.load(path, into=twice)


def test_dtypes_and_shapes_must_agree(path: Path) -> None:
    save_file({"net.w": one(1), "b": one(2)}, path)
    for wrong in (one(0).astype("f8"), one(0)[:1]):
        into = {"net": {"w": wrong}, "b": one(0)}
        with pytest.raises(ds.CheckpointError, match=r"at \['net'\]\['w'\] a tensor is"):
            ds.load(path, into=into)
        assert into["b"][0] == 0


def test_code_and_markers_of_classes_are_not_data(path: Path) -> None:
    marker = Marker()
    ds.save(Net(one(1), [abs, int, marker, {"f": len}]), path)
    assert ds.load(path).inner == [None, None, None, {"f": None}]
    mine = [min, float, Marker(), {"f": max}]
    assert ds.load(path, into=Net(one(0), mine)).inner == mine
    with pytest.raises(ds.CheckpointError, match="a function or class, which is not in the file"):
        ds.load(path, into=Net(one(0), [min, float, 3, {"f": max}]))
    ds.save(Net(one(1), [1.5, None]), path)
    with pytest.raises(ds.CheckpointError, match="would be replaced by"):
        ds.load(path, into=Net(one(0), [min, None]))


def test_objects_with_data_of_their_own_are_refused(path: Path) -> None:
    marker = Marker()
    marker.step = 3  # type: ignore[attr-defined]
    for value in (marker, {1, 2}, np.dtype("f4"), slice(3)):
        with pytest.raises(ds.ArgumentError, match="is of type"):
            ds.save(Net(one(1), [value]), path)
