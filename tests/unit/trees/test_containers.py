"""Tests of containers that only a framework knows: they are rebuilt by its rules, and keep what those leave out."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import devshim as ds
from devshim.registry import registry

CPU, GPU = ds.cpu(), ds.gpu(1)


@dataclasses.dataclass
class Batch:
    """Registered with one child, and built without its other field, as PyTorch does with fields that are dropped."""

    x: Any
    note: str = "none"


@dataclasses.dataclass
class Hidden:
    """Registered with a child that differs from its field."""

    inner: Any


@dataclasses.dataclass
class Numbered:
    """Registered with numbers as keys."""

    items: Any


class Opaque:
    """Not a dataclass, known only to the framework."""

    def __init__(self, x: Any) -> None:
        self.x = x


@pytest.fixture
def framework(fake: Any, cards: object, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a framework with a registry of containers, like PyTorch, JAX and TensorFlow."""

    def tree_flatten_one_level(node: Any) -> Any:
        if type(node) is Batch:
            return ["x"], [node.x], lambda new: Batch(*new)
        if type(node) is Hidden:
            return ["inner"], [node.inner[0]], lambda new: Hidden((new[0], "built by the framework"))
        if type(node) is Numbered:
            return [0, 1], list(node.items), lambda new: Numbered(tuple(new))
        if type(node) is Opaque:
            return ["x"], [node.x], lambda new: Opaque(*new)
        return None

    monkeypatch.setattr(fake, "tree_flatten_one_level", tree_flatten_one_level, raising=False)
    monkeypatch.setattr(registry, "_CONTAINERS", [fake])
    return fake


@pytest.fixture
def x() -> np.ndarray:
    return np.arange(3.0)


def test_what_the_framework_knows_moves(framework: Any, x: np.ndarray) -> None:
    tree = [Opaque(x)]
    moved = ds.place(tree, GPU)
    assert type(moved[0]) is Opaque
    assert ds.device_of(moved[0].x) is GPU
    assert ds.device_of(tree[0].x) is CPU
    assert ds.place(moved, GPU) is moved


def test_a_field_that_the_registry_leaves_out_is_kept(framework: Any, x: np.ndarray) -> None:
    moved = ds.place(Batch(x, note="kept"), GPU)
    assert moved.note == "kept"
    assert ds.device_of(moved.x) is GPU


def test_children_that_are_no_fields_are_rebuilt_by_the_framework(framework: Any, x: np.ndarray) -> None:
    moved = ds.place(Hidden((x, "given")), GPU)
    assert moved.inner[1] == "built by the framework"
    assert ds.device_of(moved.inner[0]) is GPU
    moved = ds.place(Numbered((x, 2)), GPU)
    assert moved.items[1] == 2
    assert ds.device_of(moved.items[0]) is GPU


def test_what_no_framework_knows_is_left_to_python(framework: Any, x: np.ndarray) -> None:
    @dataclasses.dataclass
    class Own:
        x: Any

    assert ds.device_of(ds.place(Own(x), GPU).x) is GPU
    assert ds.device_of(ds.place((x, 1), GPU)[0]) is GPU
