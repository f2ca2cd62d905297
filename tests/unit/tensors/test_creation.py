"""Tests of creation: the array API's functions, whose arguments are checked before any framework sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import devshim as ds

BAD_SHAPES = [-1, (2, -1), 1.0, (1.0,), "3", ("3",), None, True, (True,), [None], np.array([2, 3]), np.bool_(True)]
TOO_LARGE = [2**62, (2**40, 2**40), 10**30, (0, 2**63), (0, 2**40, 2**40)]
GOOD_SHAPES = {0: (0,), 3: (3,), (): (), (2, 3): (2, 3), (0, 2): (0, 2)}
FILLERS: dict[str, Callable[[Any], Any]] = {
    "zeros": lambda shape: ds.zeros(shape),
    "ones": lambda shape: ds.ones(shape),
    "empty": lambda shape: ds.empty(shape),
    "full": lambda shape: ds.full(shape, 7),
    "uniform": lambda shape: ds.random.uniform(size=shape),
    "normal": lambda shape: ds.random.normal(size=shape),
}


@pytest.mark.parametrize("name", FILLERS)
def test_shapes(name: str) -> None:
    make = FILLERS[name]
    for shape, found in GOOD_SHAPES.items():
        assert make(shape).shape == found
    for shape in ([2, 3], np.int64(4), (np.int8(2), 3), iter((2, 3)), range(2, 4), np.array(5)):
        assert make(shape).ndim in (1, 2)
    for shape in BAD_SHAPES:
        if shape is None and name in ("uniform", "normal"):
            continue  # None is a single value there
        with pytest.raises(ds.ArgumentError, match="shape"):
            make(shape)
    for shape in TOO_LARGE:
        with pytest.raises(ds.ArgumentError, match="of fewer than"):
            make(shape)


def test_a_shape_that_is_only_too_large_for_memory_is_that_error() -> None:
    with pytest.raises(ds.OutOfMemoryError, match="cpu is out of memory"):
        ds.ones(2**58, dtype="int8")


@pytest.mark.parametrize(
    ("args", "values"),
    [
        *(((3,), [0, 1, 2]), ((1, 4), [1, 2, 3]), ((5, 0, -2), [5, 3, 1]), ((0,), []), ((3, 1), [])),
        *(((0.5, 2), [0.5, 1.5]), ((np.int32(2),), [0, 1]), ((2, None), [0, 1]), ((np.float64(0), 1, 0.5), [0, 0.5])),
    ],
)
def test_arange(args: tuple[Any, ...], values: list[float]) -> None:
    found = ds.arange(*args)
    assert found.tolist() == values
    assert (found.dtype.kind == "i") == all(isinstance(part, (int, np.integer, type(None))) for part in args)


@pytest.mark.parametrize(
    "args",
    [
        *((0, 1, 0), (float("nan"),), (float("inf"),), (0, float("-inf"), -1), (1j,), ("3",), ((3,),), (None,)),
        *((0, 2**80), (0, 1, 1e-300), (0, 10, float("nan")), (np.array([3]),)),
    ],
)
def test_arange_arguments(args: tuple[Any, ...]) -> None:
    with pytest.raises(ds.ArgumentError):
        ds.arange(*args)


def test_linspace_and_eye() -> None:
    assert ds.linspace(0, 1, 5).tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert ds.linspace(0, 1, 4, endpoint=False).tolist() == [0, 0.25, 0.5, 0.75]
    assert ds.linspace(0, 1, num=0).shape == (0,)
    assert ds.linspace(2, 2, np.int64(1)).tolist() == [2]
    assert ds.eye(2, 3, k=1).tolist() == [[0, 1, 0], [0, 0, 1]]
    assert ds.eye(0).shape == (0, 0)
    assert ds.eye(2, dtype="int32").dtype == np.int32
    for call in (
        *(lambda: ds.linspace(0, 1, -1), lambda: ds.linspace(0, 1, 2.0), lambda: ds.linspace("a", 1, 2)),
        *(lambda: ds.linspace(0, 10**400, 2), lambda: ds.arange(10**400, 10**400 + 2)),
        *(lambda: ds.eye(-1), lambda: ds.eye(2, 1.5), lambda: ds.eye(2, k=1.0), lambda: ds.eye(True)),
    ):
        with pytest.raises(ds.ArgumentError):
            call()


def test_full_takes_the_kind_of_its_value() -> None:
    for value, kind in ((1, "i"), (1.5, "f"), (True, "b"), (1j, "c"), (np.float32(2), "f")):
        assert ds.full(2, value).dtype.kind == kind
    for value in ("1", None, [1], np.array([1]), np.array(3), 2**64, -(2**63) - 1, object()):
        with pytest.raises(ds.ArgumentError, match="fill_value"):
            ds.full(2, value)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["float32", np.float32, np.dtype("float32"), np.dtype(">f4")])
def test_dtypes(dtype: Any) -> None:
    for x in (ds.zeros(2, dtype=dtype), ds.asarray([1], dtype=dtype), ds.zeros_like(np.ones(1), dtype=dtype)):
        assert x.dtype == np.dtype("float32")
        assert x.dtype.isnative


@pytest.mark.parametrize("dtype", ["float31", "object", object, float, 3, np.dtype(object), np.dtype("U3"), "<f4", []])
def test_bad_dtypes(dtype: Any) -> None:
    for make, argument in ((ds.zeros, 2), (ds.asarray, [1]), (ds.eye, 2)):
        with pytest.raises(ds.ArgumentError, match="dtype"):
            make(argument, dtype=dtype)


def test_like() -> None:
    x = np.ones((2, 3), dtype=np.int16)
    for call, value in ((ds.zeros_like, 0), (ds.ones_like, 1), (lambda x, **k: ds.full_like(x, 7, **k), 7)):
        y = call(x)
        assert (y.shape, y.dtype, set(y.ravel())) == ((2, 3), np.int16, {value})
        assert call(x, dtype="float64").dtype == np.float64
    assert ds.empty_like(x).shape == (2, 3)
    for thing in ([1, 2], 3, None):
        with pytest.raises(ds.NotATensorError):
            ds.zeros_like(thing)


def test_asarray_reads_what_numpy_reads() -> None:
    class Offers:
        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            return np.arange(2)

    for obj in (5, [1, 2], ((1, 2), (3, 4)), range(3), np.float32(1), memoryview(b"ab"), Offers(), [np.int8(1), 2]):
        assert ds.asarray(obj).shape == np.asarray(obj).shape
    assert ds.asarray(np.float32(1)).dtype == np.float32
    assert ds.asarray([], dtype="float32").shape == (0,)


@pytest.mark.parametrize(
    "obj",
    [*("text", ["a"], None, [None], object, {"a": 1}, {1, 2}, [[1], [2, 3]], b"bytes", 10**400, [1, "a"])],
    ids=str,
)
def test_asarray_refuses_what_holds_no_numbers(obj: Any) -> None:
    with pytest.raises(ds.ConversionError):
        ds.asarray(obj)


def test_asarray_of_an_object_that_will_not() -> None:
    class Refuses:
        def __array__(self, *args: object, **kwargs: object) -> Any:
            raise TypeError("ask nicely")

    with pytest.raises(ds.ConversionError, match="ask nicely"):
        ds.asarray(Refuses())


def test_asarray_of_a_tensor_is_place(cards: object) -> None:
    x = np.arange(3)
    there = ds.asarray(x, device=1)
    assert ds.asarray(x) is x
    assert ds.asarray(there) is there
    assert ds.asarray(there, dtype="int64") is there
    assert ds.device_of(ds.asarray(there, dtype="float32")) is ds.gpu(1)
    assert ds.asarray(x, copy=True) is not x
    for call in (
        lambda: ds.asarray(there, device="cpu", copy=False),
        lambda: ds.asarray(x, dtype="float32", copy=False),
        lambda: ds.asarray([1, 2], copy=False),
    ):
        with pytest.raises(ds.CopyNeededError):
            call()


def test_asarray_for_another_framework(fake: Any, cards: object) -> None:
    """A host array is values; one on a GPU is NumPy's tensor, and stays on NumPy."""
    x, there = np.arange(3), ds.asarray([1, 2], device=1)
    with ds.using("fakeframe"):
        made = ds.asarray(x, device="gpu:1", dtype="float32")
        assert type(made).__module__ == "fakeframe"
        assert (made.card, made.dtype) == (ds.gpu(1), np.float32)
        assert not np.shares_memory(ds.asarray(x), x)
        shared = ds.asarray(x, copy=False)
        assert np.shares_memory(shared, x)
        assert ds.asarray(there) is there
        with pytest.raises(ds.ArgumentError, match="host memory is needed, and this one is on gpu:1"):
            ds.from_numpy(there)
        with pytest.raises(ds.ConversionError, match="mask"):
            ds.from_numpy(np.ma.masked_array([1, 2], [0, 1]))


def test_random() -> None:
    ds.random.seed(3)
    first = ds.random.normal(5, 0, (2, 2)), ds.random.uniform(2, 4, 100)
    ds.random.seed(np.int64(3))
    second = ds.random.normal(5, 0, (2, 2)), ds.random.uniform(2, 4, 100)
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert (first[0] == 5).all()
    assert ((first[1] >= 2) & (first[1] < 4)).all()
    assert ds.random.uniform().shape == ()
    assert ds.random.uniform(dtype="float32", size=3).dtype == np.float32


@pytest.mark.parametrize(
    "call",
    [
        *(lambda: ds.random.uniform(2, 1), lambda: ds.random.uniform(float("nan")), lambda: ds.random.uniform(1j)),
        *(lambda: ds.random.uniform(0, float("inf")), lambda: ds.random.normal(0, -1), lambda: ds.random.normal("0")),
        *(lambda: ds.random.uniform(dtype="int32"), lambda: ds.random.normal(dtype=np.dtype("bool"))),
        *(lambda: ds.random.seed(-1), lambda: ds.random.seed(2**32), lambda: ds.random.seed(1.5)),
        *(lambda: ds.random.seed(None), lambda: ds.random.seed(True)),  # type: ignore[arg-type]
    ],
)
def test_random_arguments(call: Callable[[], Any]) -> None:
    with pytest.raises(ds.ArgumentError):
        call()


def test_the_bounds_of_an_empty_arange_need_not_fit() -> None:
    assert ds.arange(300, 300, dtype="int8").shape == (0,)
    with pytest.raises(ds.ConversionError):
        ds.arange(300, 301, dtype="int8")
