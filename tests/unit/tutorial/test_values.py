"""Tests of the descriptions of values, which are compared between frameworks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import devshim as ds
from devshim.tutorial.kernel import assigned_names
from devshim.tutorial.values import MOST_NUMBERS, describe, describe_tensors

pytestmark = pytest.mark.usefixtures("numpy_gpus")


@pytest.fixture
def numpy_gpus() -> None:
    ds.use("numpy")
    ds.simulate(2)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (None, {"kind": "none"}),
        (True, {"kind": "bool", "value": True}),
        (3, {"kind": "number", "value": 3}),
        (float("nan"), {"kind": "number", "value": "nan"}),
        ("text", {"kind": "text", "value": "text"}),
        (ds.gpu(1), {"kind": "device", "value": "gpu:1"}),
        ((1, [2]), {"kind": "tuple", "items": [{"kind": "number", "value": 1}, {"kind": "list", "items": [
            {"kind": "number", "value": 2}]}]}),
        ({"a": None}, {"kind": "dict", "items": {"a": {"kind": "none"}}}),
        (np.dtype("float32"), {"kind": "dtype", "value": "float32"}),
        (object(), {"kind": "object", "type": "builtins.object"}),
    ],
)  # fmt: skip
def test_a_value_has_a_kind(value: object, found: dict[str, Any]) -> None:
    ds.ones(1)  # so that NumPy's adapter is loaded
    assert describe(value) == found


def test_a_tensor_has_shape_dtype_device_and_numbers() -> None:
    x = ds.asarray([[1.0, float("inf")]], dtype="float32", device="gpu:1")
    assert describe(x) == {
        "kind": "tensor",
        "shape": [1, 2],
        "dtype": "float32",
        "device": "gpu:1",
        "count": 2,
        "numbers": [1.0, "inf"],
    }
    assert describe(ds.asarray(True))["numbers"] == [True]
    assert describe(ds.asarray([1 + 2j]))["numbers"] == [1.0, 2.0]
    assert describe(ds.zeros((0, 3)))["numbers"] == []


def test_a_large_tensor_is_sampled() -> None:
    whole, other = ds.arange(5000, dtype="int64"), np.arange(5000)
    found = describe(whole)
    assert len(found["numbers"]) == MOST_NUMBERS
    assert (found["numbers"][0], found["numbers"][-1]) == (0, 4999)
    between = next(i for i in range(5000) if i not in found["numbers"])
    other[between] += 1
    assert describe(other)["numbers"] == found["numbers"]
    assert describe(other)["digest"] != found["digest"]
    means = describe(ds.arange(5000, dtype="float64"))
    assert (means["least"], means["most"], means["mean"]) == (0.0, 4999.0, 2499.5)


def test_what_cannot_be_read_is_an_object() -> None:
    class Broken(np.ndarray):
        def __array_finalize__(self, obj: object) -> None:
            self.broken = True

        @property
        def shape(self) -> tuple[int, ...]:  # type: ignore[override]
            msg = "deleted"
            raise RuntimeError(msg)

    assert describe(np.ones(3).view(Broken))["kind"] == "object"


def test_a_container_that_raises_is_an_object() -> None:
    class Odd(dict[str, int]):
        def items(self) -> Any:
            raise RuntimeError

    assert describe([Odd()])["items"][0]["kind"] == "object"


def test_only_tensors_are_kept_of_variables() -> None:
    assert describe_tensors(3.0) is None
    assert describe_tensors([1, "a"]) is None
    found = describe_tensors({"w": ds.ones(1), "n": 1})
    assert found is not None
    assert found["items"]["w"]["kind"] == "tensor"


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("x = 1\ny: int = 2\nz += 1", ["x", "y", "z"]),
        ("a, (b, *c) = f()", ["a", "b", "c"]),
        ("for i in r:\n    with f() as g:\n        h = 1", ["i", "g", "h"]),
        ("print(n := 3)", ["n"]),
        ("def f():\n    inner = 1\nclass C:\n    member = 1\n[k for k in r]\nlambda: (w := 1)", []),
        ("_hidden = 1\nimport numpy as np", []),
        ("x = (", []),
    ],
)
def test_assigned_names_are_found(source: str, names: list[str]) -> None:
    assert sorted(assigned_names(source)) == sorted(names)
