"""Tests of the fast path for plain trees: it takes only those, and rebuilds them unchanged."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest

import devshim as ds
from devshim.trees import plain

X, Y = np.ones(2), np.zeros(3)
Pair = namedtuple("Pair", "a b")


@pytest.fixture(autouse=True)
def _seen() -> None:
    ds.device_of(X)


@pytest.mark.parametrize("tree", [X, [X], (X, Y), {"b": X, "a": (Y, [X])}, [], {"a": ()}, [[X, X], X]])
def test_plain_trees(tree: Any) -> None:
    found: list[Any] = []
    assert plain.collect(tree, found)
    again: list[Any] = []
    new = plain.rebuild(tree, iter(found))
    assert type(new) is type(tree)
    assert new is not tree or tree is X or tree == ()
    assert plain.collect(new, again)
    assert [id(x) for x in again] == [id(x) for x in found]


def test_the_order_of_a_dict() -> None:
    new = plain.rebuild({"b": X, "a": [Y]}, iter("xy"))
    assert list(new.items()) == [("b", "x"), ("a", ["y"])]


@pytest.mark.parametrize(
    "tree", [1.0, None, [X, None], {"a": 1}, OrderedDict(a=X), Pair(X, Y), "text", [X, {"a": {X.size}}], object()]
)
def test_other_trees(tree: Any) -> None:
    assert not plain.collect(tree, [])


def test_trees_that_are_deep_or_contain_themselves() -> None:
    deep: Any = X
    for _ in range(100):
        deep = [deep]
    assert not plain.collect(deep, [])
    loop: list[Any] = [X]
    loop.append(loop)
    assert not plain.collect(loop, [])
