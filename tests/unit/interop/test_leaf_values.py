"""Tests of `leaves` and `assign` that are not in the kit: paths, ties, read-only arrays, and errors half-way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import devshim as ds


def test_a_tensor_alone_has_the_empty_path() -> None:
    x = np.zeros(2)
    assert ds.leaves(x)[""] is x
    assert ds.assign(x, {"": np.ones(2)}) is x
    assert x.tolist() == [1, 1]


def test_paths_are_those_of_placements() -> None:
    tree = {"a": [np.zeros(1), {3: np.zeros(1)}], "b": (np.zeros(1),), "n": None, "text": "x"}
    assert set(ds.leaves(tree)) == set(ds.placement_of(tree)) == {"a.0", "a.1.3", "b.0"}
    assert ds.leaves([]) == {}


def test_one_path_for_two_tensors_is_refused() -> None:
    with pytest.raises(ds.ArgumentError, match="two tensors have the path"):
        ds.leaves({"a.b": np.zeros(1), "a": {"b": np.zeros(1)}})


@pytest.mark.parametrize("obj", [3, "text", object()], ids=["a number", "text", "an object"])
def test_what_has_no_leaves(obj: Any) -> None:
    for call in (lambda: ds.leaves(obj), lambda: ds.assign(obj, {})):
        with pytest.raises(ds.NotATensorError):
            call()


def test_a_tensor_at_two_places_is_one() -> None:
    x = np.zeros(2)
    tree = {"a": x, "b": [x]}
    assert ds.assign(tree, {"a": np.ones(2)}) is tree
    assert tree["b"][0] is x
    assert x.tolist() == [1, 1]
    same = np.full(2, 5.0)
    ds.assign(tree, {"a": same, "b.0": same})
    assert x.tolist() == [5, 5]
    with pytest.raises(ds.ArgumentError, match="are one tensor, and were given two values"):
        ds.assign(tree, {"a": np.ones(2), "b.0": np.zeros(2)})
    assert x.tolist() == [5, 5]


def test_read_only_arrays_are_replaced_in_a_new_tree() -> None:
    fixed = np.zeros(2)
    fixed.flags.writeable = False
    tree = (fixed, np.zeros(2))
    got = ds.assign(tree, {"0": np.ones(2), "1": np.full(2, 2.0)})
    assert got is not tree
    assert [x.tolist() for x in got] == [[1, 1], [2, 2]]
    assert fixed.tolist() == [0, 0]
    assert got[1] is tree[1], "an array that can be overwritten is"


def test_a_write_that_fails_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    from devshim.registry import registry

    backend = registry.load("numpy")
    writes = type(backend).assign
    calls: list[Any] = []

    def fails(self: Any, x: Any, value: Any) -> None:
        calls.append(x)
        if len(calls) == 2:
            raise OSError("the device is gone")
        writes(self, x, value)

    monkeypatch.setattr(type(backend), "assign", fails)
    tree = {"a": np.zeros(2), "b": np.zeros(2)}
    with pytest.raises(OSError, match="gone"):
        ds.assign(tree, {"a": np.ones(2), "b": np.ones(2)})
    assert [x.tolist() for x in tree.values()] == [[0, 0], [0, 0]]


def test_many_unknown_paths_are_counted() -> None:
    with pytest.raises(ds.ArgumentError, match=r"no tensor at 'p', 'q', 'r' and 2 more; it has 1 tensor"):
        ds.assign({"weight": np.zeros(1)}, dict.fromkeys("pqrst", np.zeros(1)))
    with pytest.raises(ds.ArgumentError, match="it has no tensors yet"):
        ds.assign([], {"0": np.zeros(1)})


def test_values_come_from_any_device() -> None:
    ds.simulate(2)
    tree = {"a": ds.zeros(2, device="gpu:1"), "b": ds.zeros((), device="gpu:0"), "c": ds.zeros((0, 3))}
    ds.assign(tree, {"a": ds.ones(2, device="gpu:0"), "b": np.ones(()), "c": ds.ones((0, 3), device="gpu:1")})
    assert {name: str(ds.device_of(x)) for name, x in tree.items()} == {"a": "gpu:1", "b": "gpu:0", "c": "cpu"}
    assert [ds.to_numpy(x).tolist() for x in tree.values()] == [[1, 1], 1, []]
