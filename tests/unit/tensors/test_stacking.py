"""Tests of lists of tensors as one tensor: its device, its dtype, and what is allowed together with the tensors."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import pytest

import devshim as ds
from devshim.devices.dtypes import promoted

CPU, G0, G1 = ds.cpu(), ds.gpu(0), ds.gpu(1)


@pytest.fixture(autouse=True)
def _cards(cards: object) -> None:
    """Use two simulated GPUs."""


def tensor(values: Any, device: Any = G1, dtype: str = "float32") -> Any:
    return ds.asarray(values, dtype=dtype, device=device)


@pytest.fixture
def other(fake: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return another framework, whose tensors differ from NumPy arrays."""

    def stack_tensors(xs: Any) -> Any:
        return fake.to_device(np.stack([np.array(x) for x in xs]), xs[0].card)

    monkeypatch.setattr(fake, "stack_tensors", stack_tensors, raising=False)
    return fake


def test_tensors_of_the_current_framework_are_stacked_where_they_are(other: Any) -> None:
    ds.use("fakeframe")
    xs = [other.to_device(np.full(2, float(i)), G1) for i in range(3)]
    made = ds.asarray(xs)
    assert type(made) is type(xs[0])
    assert made.card is G1
    assert made.tolist() == [[0, 0], [1, 1], [2, 2]]
    host = [other.to_device(np.ones(2), CPU)] * 2
    assert type(ds.asarray(host)) is type(xs[0])


def test_arrays_of_the_host_become_the_current_frameworks_tensor(other: Any) -> None:
    ds.use("fakeframe")
    made = ds.asarray([np.ones(2), np.zeros(2)])
    assert type(made).__module__ == "fakeframe"
    assert made.tolist() == [[1, 1], [0, 0]]


def test_arrays_on_a_card_are_tensors_whatever_is_current(other: Any) -> None:
    xs = [tensor([1, 2]), tensor([3, 4])]
    ds.use("fakeframe")
    made = ds.asarray(xs)
    assert type(made).__module__ != "fakeframe"
    assert ds.device_of(made) is G1
    assert made.tolist() == [[1, 2], [3, 4]]


def test_arrays_of_the_host_may_stand_among_tensors(other: Any) -> None:
    made = ds.asarray([np.ones(2), other.to_device(np.zeros(2), G1)], device=G1)
    assert type(made).__module__ == "fakeframe"
    assert made.card is G1
    assert made.tolist() == [[1, 1], [0, 0]]


def test_tensors_of_two_frameworks_are_refused(other: Any) -> None:
    with pytest.raises(ds.ArgumentError, match=r"(?s)NumPy and Fakeframe.*ds\.convert\(x, 'fakeframe'\)"):
        ds.asarray([tensor([1, 2]), other.to_device(np.zeros(2), G1)])


def test_tensors_on_two_devices_are_named(other: Any) -> None:
    with pytest.raises(ds.DeviceMismatchError, match=r"obj\[0\]\[1\] is on cpu, obj\[1\]\[0\] is on gpu:1"):
        ds.asarray([[1, tensor(2, CPU)], [tensor(3, G1), 4]])


@pytest.mark.parametrize(
    ("number", "dtypes", "dtype"),
    [
        (True, ["int32"], "int32"),
        (True, ["bool"], "bool"),
        (2, ["bool", "int16"], "int16"),
        (2, ["uint8"], "uint8"),
        (2.5, ["float16"], "float16"),
        (2.5, ["bool", "int32", "float32"], "float32"),
        (2, ["float32"], "float32"),
        (2j, ["float32", "complex64"], "complex64"),
        (1.5, ["complex64"], "complex64"),
        (np.float64(1.5), ["float32"], "float32"),
    ],
)
def test_a_number_takes_the_first_dtype_that_can_hold_it(number: Any, dtypes: list[str], dtype: str) -> None:
    """The result has the common dtype of the tensors and of the number in that dtype."""
    xs = [tensor(1, dtype=each) for each in dtypes]
    made = ds.asarray([number, *xs])
    assert made.dtype == reduce(promoted, [*dtypes, dtype])
    assert made.tolist() == [number, *[1] * len(xs)]
    assert ds.device_of(made) is G1


@pytest.mark.parametrize(("number", "kind"), [(2, "i"), (2.5, "f"), (2j, "c")])
def test_a_number_that_no_tensor_can_hold_has_its_own_dtype(number: Any, kind: str) -> None:
    made = ds.asarray([tensor(True, dtype="bool"), number])
    assert made.dtype.kind == kind
    assert made[1].item() == number


def test_one_dtype_for_all() -> None:
    made = ds.asarray([tensor([1, 2], dtype="int32"), [0.5, tensor(3)]], dtype="float16")
    assert made.dtype == "float16"
    assert made.tolist() == [[1, 2], [0.5, 3]]


def test_a_device_moves_them_all() -> None:
    made = ds.asarray([tensor(1, G0), tensor(2, CPU), 3], device=G1)
    assert ds.device_of(made) is G1
    assert made.tolist() == [1, 2, 3]
    same = ds.asarray([tensor(1, G0), tensor(2, G0)], device=G1)
    assert ds.device_of(same) is G1


def test_copies_are_counted_once() -> None:
    xs = [tensor([1, 2], G0), tensor([3, 4], G0)]
    with ds.transfers() as log:
        ds.asarray(xs, device=G1)
        ds.asarray(xs)
        ds.asarray(xs, device=G0)
    assert [(each.source, each.target, each.bytes) for each in log.records] == [(G0, G1, 16)]


def test_what_cannot_be_stacked_says_why() -> None:
    x = tensor([1, 2])
    with pytest.raises(ds.ConversionError, match=r"different shapes: \(2,\) and \(\)"):
        ds.asarray([x, 1])
    with pytest.raises(ds.ConversionError, match="no rows"):
        ds.asarray([[], [x]])
    with pytest.raises(ds.ConversionError, match="an object of type str among them"):
        ds.asarray([x, "text"])
    with pytest.raises(ds.CopyNeededError, match="a list of tensors"):
        ds.asarray([x, x], copy=False)
    with pytest.raises(ds.DeviceNotFoundError):
        ds.asarray([x, x], device="gpu:2")


def test_a_frameworks_refusal_names_the_dtypes(other: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def stack_tensors(xs: Any) -> Any:
        raise TypeError("they differ\nand more")

    monkeypatch.setattr(other, "stack_tensors", stack_tensors)
    ds.use("fakeframe")
    xs = [other.to_device(np.ones(1, "float32"), G1) for _ in range(2)]
    with pytest.raises(ds.ConversionError) as caught:
        ds.asarray(xs)
    assert caught.value.problem == "Fakeframe does not stack tensors of float32: they differ"
    assert "dtype='float32'" in caught.value.hint


def test_a_full_card_is_not_a_refusal_to_stack(cards: object) -> None:
    ds.simulate(2, memory="4KiB")
    xs = [ds.ones(300, dtype="float32", device=G1) for _ in range(2)]
    with pytest.raises(ds.OutOfMemoryError):
        ds.asarray(xs)
