"""Tests of layouts: a weight goes from one framework's layout to another's through the canonical one, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import devshim as ds
from devshim.checkpoints.layer_matching import match_layers, name_some
from devshim.checkpoints.layouts import Term, assemble, canonical_shape, require_sound
from devshim.checkpoints.stored import Source, StoredObject, StoredTensor
from devshim.contract.models import Layer, Leaf, Weight
from devshim.errors import CheckpointError


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape)


def brought(there: Weight, array: np.ndarray, here: Weight, shape: tuple[int, ...]) -> np.ndarray:
    return assemble([(Term(there, here), lambda: array)], shape)


def test_a_dense_layer_behind_a_flattened_map() -> None:
    """Keras's (height, width, channels) against PyTorch's (channels, height, width), both computed."""
    image, weight = numbers(3, 4, 5), numbers(7, 60)
    keras = Weight("k", (2, 3, 1, 0), ((7,), (3, 4, 5)))
    kernel = brought(Weight("t"), weight, keras, (60, 7))
    assert np.allclose(image.transpose(1, 2, 0).reshape(-1) @ kernel, weight @ image.reshape(-1))
    assert np.array_equal(brought(keras, kernel, Weight("t"), (7, 60)), weight)
    assert canonical_shape(keras, (60, 7)) == (7, 60)


def test_gates_in_another_order() -> None:
    weight = numbers(6, 3)  # r, z, n of two units each
    keras = Weight("k", (2, 0, 1), ((3, 2), (3,)), (1, 0, 2))
    r, z, n = weight.reshape(3, 2, 3)
    assert np.array_equal(brought(Weight("t"), weight, keras, (3, 6)), np.concatenate([z, r, n]).T)


def test_parts_of_one_leaf_and_sums() -> None:
    first, second = numbers(2, 3), numbers(4)
    plain, front = Weight("w"), Weight("w", (1, 0), ((2,), (3,)), None, (0, 6))
    back = Weight("w", None, ((4,),), None, (6, 10))
    fused = assemble([(Term(plain, front), lambda: first), (Term(plain, back), lambda: second)], (10,))
    assert np.array_equal(fused, [*first.T.reshape(-1), *second])
    assert np.array_equal(brought(front, fused, plain, (2, 3)), first)
    assert np.array_equal(brought(back, fused, plain, (4,)), second)
    both = [(Term(plain, plain), lambda: second), (Term(plain, plain), lambda: second)]
    assert np.array_equal(assemble(both, (4,)), 2 * second)
    assert assemble([(Term(plain, plain, counts=False), lambda: second)], (4,)).tolist() == [0] * 4
    assert second[0] == numbers(4)[0]  # what was read is unchanged


@st.composite
def layouts(draw: st.DrawFn, shape: tuple[int, ...]) -> Weight:
    """Draw any layout of a canonical shape whose sizes are products of two."""
    folded = tuple(draw(st.sampled_from([(size,), (2, size // 2), (size // 2, 2)])) for size in shape)
    sizes = [size for axis in folded for size in axis]
    order = draw(st.none() | st.permutations(range(sizes[0])).map(tuple))
    return Weight("w", tuple(draw(st.permutations(range(len(sizes))))), folded, order)


@given(st.data(), st.lists(st.sampled_from([2, 4, 6]), min_size=1, max_size=3))
def test_there_and_back_by_any_two_layouts(data: st.DataObject, sizes: list[int]) -> None:
    shape = tuple(sizes)
    first, second = data.draw(layouts(shape)), data.draw(layouts(shape))
    array = numbers(*shape)
    flat = (math.prod(shape),)
    there = brought(Weight("w"), array, first, flat)
    require_sound(first, flat)
    assert sorted(there) == sorted(array.reshape(-1))
    here = brought(first, there, second, flat)
    assert np.array_equal(brought(second, here, Weight("w"), shape), array)
    assert np.array_equal(brought(Weight("w"), array, second, flat), here)


@pytest.mark.parametrize(
    "weight",
    [
        Weight("w", (0, 2)),
        Weight("w", (0,)),
        Weight("w", None, ((3,), (4,))),
        Weight("w", None, ((-2,), (-3,))),
        Weight("w", None, None, (0, 0)),
        Weight("w", None, None, (0, 1, 2)),
        Weight("w", None, None, None, (0, 6)),
        Weight("w", None, ((5,),), None, (2, 7)),
        Weight("w", None, ((2,),), None, (-2, 0)),
        Weight("w", None, ((2,),), None, (4, 2)),
    ],
    ids=repr,
)
def test_a_layout_that_cannot_be_is_refused(weight: Weight) -> None:
    with pytest.raises(ValueError, match=r"weight|part"):
        require_sound(weight, (2, 3))


# ---------------------------------------------------------------------- which tensor has which role
class Toy:
    """A backend whose model is one layer, and whose tensors are arrays."""

    name, title = "toy", "Toy"

    def __init__(self, layer: Layer, leaves: Mapping[str, np.ndarray]) -> None:
        self.layer, self.held = layer, leaves

    def library(self, model: Any) -> str:
        return self.name

    def layers(self, model: Any) -> list[Layer]:
        return [self.layer]

    def dtype_name(self, x: np.ndarray) -> str:
        return str(x.dtype)

    def shape(self, x: np.ndarray) -> tuple[int, ...]:
        return x.shape


def filled(
    mine: Layer, held: Mapping[str, np.ndarray], theirs: Layer, arrays: Mapping[str, np.ndarray], by: str
) -> dict[str, np.ndarray]:
    """Return what each leaf of a model gets from a file."""
    backend = Toy(mine, held)
    tensors = {path: StoredTensor(path, str(array.dtype), array.shape, 0) for path, array in arrays.items()}
    reported = [{"kind": theirs.kind, "path": theirs.path, "weights": theirs.weights, "facts": theirs.settings}]
    stored = StoredObject(by, by.title(), "Model", {p: ("parameter", t) for p, t in tensors.items()}, reported, None)
    leaves = {path: Leaf(path, "parameter", lambda x=x: x, SimpleNamespace, x) for path, x in held.items()}
    found = match_layers(backend, object(), stored, "it", leaves)  # type: ignore[arg-type]
    return {path: source.values(lambda tensor: arrays[tensor.name]) for path, source in found.items()}


def test_integers_are_converted_to_another_dtype_if_they_fit() -> None:
    """Keras counts in int32 on one framework, in int64 on another."""
    source = Source(StoredTensor("steps", "int64", (2,), 0), dtype="int32")
    made = source.values(lambda tensor: np.array([-7, 2**31 - 1]))
    assert made.dtype == np.int32
    assert made.tolist() == [-7, 2**31 - 1]
    with pytest.raises(CheckpointError, match="the numbers of 'steps', int64 in the file, do not fit into int32"):
        source.values(lambda tensor: np.array([-7, 2**31]))


ONE = Layer("lstm", "one", {"bias_ih+bias_hh": Weight("b")})
TWO = Layer("lstm", "two", {"bias_ih": Weight("i"), "bias_hh": Weight("h")})


def test_one_bias_is_the_sum_of_two() -> None:
    i, h, b = numbers(3), numbers(3) + 1, numbers(3) + 2
    assert np.array_equal(filled(ONE, {"b": b}, TWO, {"i": i, "h": h}, "other")["b"], i + h)
    two = filled(TWO, {"i": i, "h": h}, ONE, {"b": b}, "other")
    assert np.array_equal(two["i"], b)
    assert two["h"].tolist() == [0] * 3
    assert np.array_equal(filled(ONE, {"b": b}, ONE, {"b": i}, "toy")["b"], i)


def test_what_is_unclear_crosses_within_its_framework_alone() -> None:
    unclear = Layer("linear", "d", {"weight": Weight("k", (1, 0), unclear="nobody knows the order")})
    clear = Layer("linear", "0", {"weight": Weight("k")})
    square = {"k": numbers(3, 3)}
    for mine, theirs in ((unclear, clear), (clear, unclear)):
        with pytest.raises(ds.CheckpointError, match="and nobody knows the order") as caught:
            filled(mine, {"k": np.zeros((3, 3))}, theirs, square, "other")
        assert "by hand" in str(caught.value)
    assert filled(unclear, {"k": np.zeros((3, 3))}, unclear, square, "toy")["k"] is square["k"]


def test_a_leaf_that_would_be_filled_in_part_is_refused() -> None:
    mine = Layer("lstm", "fused", {"bias_ih": Weight("p", None, ((3,),), None, (0, 3))})
    theirs = Layer("lstm", "l0", {"bias_ih": Weight("i")})
    with pytest.raises(ds.CheckpointError, match="no layer that devshim knows on both frameworks has 'p'"):
        filled(mine, {"p": np.zeros(5)}, theirs, {"i": numbers(3)}, "other")
    assert filled(mine, {"p": np.zeros(3)}, theirs, {"i": numbers(3)}, "other")["p"].shape == (3,)


def test_what_a_layer_does_not_use_need_not_be_filled() -> None:
    mine = Layer("batch_norm", "n", {"bias": Weight("b")}, {}, ("scale",))
    theirs = Layer("batch_norm", "1", {"bias": Weight("b")})
    found = filled(mine, {"b": np.zeros(2), "scale": np.ones(2)}, theirs, {"b": numbers(2)}, "other")
    assert list(found) == ["b"]
    with pytest.raises(ds.CheckpointError, match="has 'more'"):
        filled(mine, {"b": np.zeros(2), "more": np.ones(2)}, theirs, {"b": numbers(2)}, "other")


def test_every_name_of_a_tie_is_filled() -> None:
    x = np.zeros(2)
    mine = Layer("batch_norm", "n", {"bias": Weight("b")})
    found = filled(mine, {"a": x, "b": x}, Layer("batch_norm", "1", {"bias": Weight("b")}), {"b": numbers(2)}, "other")
    assert np.array_equal(found["a"], found["b"])


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ("a", "'a'"),
        ("abc", "'a', 'b', 'c'"),
        ("abcd", "'a', 'b', 'c' and 1 more"),
        ("a" * 9, "'a', 'a', 'a' and 6 more"),
    ],
)
def test_of_many_names_three_are_listed(names: str, text: str) -> None:
    assert name_some(list(names)) == text
