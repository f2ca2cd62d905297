"""Tests of `Device`: a frozen, ordered, interned value."""

from __future__ import annotations

import copy
import itertools
import pickle
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

import devshim as ds
from devshim.devices.device import ALIASES, KINDS, MAX_INDEX

kinds = st.sampled_from(KINDS)
indices = st.integers(0, MAX_INDEX)
devices = st.builds(ds.Device, kinds, indices)


@given(devices)
def test_text_leads_back_to_the_same_object(device: ds.Device) -> None:
    assert ds.device(str(device)) is device
    assert eval(repr(device), {"Device": ds.Device}) is device


@given(devices)
def test_copies_are_the_same_object(device: ds.Device) -> None:
    assert copy.copy(device) is device
    assert copy.deepcopy({"d": [device]})["d"][0] is device
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(device, protocol)) is device


@given(kinds, indices, kinds, indices)
def test_equal_is_identical(kind: str, index: int, other_kind: str, other_index: int) -> None:
    one, other = ds.Device(kind, index), ds.Device(other_kind, other_index)
    same = (kind, 0 if kind == "cpu" else index) == (other_kind, 0 if other_kind == "cpu" else other_index)
    assert (one is other) == (one == other) == same
    assert (hash(one) == hash(other)) or not same


@given(st.lists(devices))
def test_the_order_is_by_kind_then_index(found: list[ds.Device]) -> None:
    ordered = sorted(found)
    assert ordered == sorted(found, key=lambda d: (KINDS.index(d.kind), d.index))
    for low, high in itertools.pairwise(ordered):
        assert low <= high
        assert high >= low
        assert (low < high) == (low is not high) == (high > low)


def test_order_against_anything_else_is_an_error() -> None:
    for compare in (lambda: ds.cpu() < "gpu:1", lambda: ds.cpu() <= 1, lambda: ds.cpu() > None, lambda: ds.cpu() >= ()):
        with pytest.raises(TypeError):
            compare()
    assert ds.gpu(1) != "gpu:1"


def test_every_cpu_is_the_cpu() -> None:
    assert ds.Device("cpu", 7) is ds.cpu() is ds.Device("CPU")
    assert (ds.cpu().index, str(ds.cpu()), repr(ds.cpu())) == (0, "cpu", "Device('cpu')")


@pytest.mark.parametrize("name", ALIASES)
def test_every_name_of_a_kind_in_any_case(name: str) -> None:
    assert ds.Device(name, 1) is ds.Device(name.upper(), 1) is ds.Device(ALIASES[name], 1)


def test_cuda_and_rocm_are_gpus() -> None:
    assert ds.Device("cuda", 1) is ds.Device("rocm", 1) is ds.gpu(1)


def test_frozen() -> None:
    device = ds.gpu(1)
    for name in ("kind", "index", "other"):
        with pytest.raises(AttributeError, match="frozen"):
            setattr(device, name, 2)
        with pytest.raises(AttributeError, match="frozen"):
            delattr(device, name)
    with pytest.raises(AttributeError, match="frozen"):
        device.__class__ = object
    assert not hasattr(device, "__dict__")


def test_no_subclass_can_lie_about_identity() -> None:
    with pytest.raises(TypeError, match="subclass"):
        type("Mine", (ds.Device,), {})


@pytest.mark.parametrize("index", [True, 1.0, "1", None, b"1", [1], (1,), float("nan")])
def test_an_index_is_an_integer(index: object) -> None:
    with pytest.raises(ds.DeviceSpecError, match="a device index is an integer, not"):
        ds.Device("gpu", index)  # type: ignore[arg-type]


@pytest.mark.parametrize(("index", "nearest"), [(-1, 0), (MAX_INDEX + 1, MAX_INDEX), (10**400, MAX_INDEX)])
def test_an_index_out_of_range_shows_what_was_given_and_the_nearest(index: int, nearest: int) -> None:
    with pytest.raises(ds.DeviceSpecError) as caught:
        ds.gpu(index)
    assert str(index) in caught.value.problem or "bits" in caught.value.problem
    assert f"gpu:{nearest}" in str(caught.value.hint)


@pytest.mark.parametrize("kind", ["", "gpux", "x" * 10**6, 3, None, b"gpu", ["gpu"], "gpu:0", "\ud800"])
def test_an_unknown_kind(kind: object) -> None:
    with pytest.raises(ds.DeviceSpecError, match="no device kind is called") as caught:
        ds.Device(kind)  # type: ignore[arg-type]
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        ("gpu:0", "ds.device('gpu:0') reads text with an index; the kinds are cpu, gpu"),
        ("x:" * 40, "ds.device('x:x:"),
        ("x:" * 41, "the kinds are cpu, gpu"),
        ("gpux", "the kinds are cpu, gpu"),
        (["gpu:0"], "the kinds are cpu, gpu"),
    ],
)
def test_text_with_an_index_is_for_another_call(kind: object, hint: str) -> None:
    with pytest.raises(ds.DeviceSpecError) as caught:
        ds.Device(kind)  # type: ignore[arg-type]
    assert str(caught.value.hint).startswith(hint)


@pytest.mark.parametrize(
    ("index", "hint"),
    [
        ("1", "ds.Device('gpu', 1)"),
        ("99999", "ds.Device('gpu', 99999)"),
        ("999999", "ds.Device('gpu', 0)"),
        ("-1", "ds.Device('gpu', 0)"),
        ("²", "ds.Device('gpu', 0)"),
        (1.0, "ds.Device('gpu', 0)"),
        (None, "ds.Device('gpu', 0)"),
    ],
)
def test_text_that_is_an_index_is_one_in_the_hint(index: object, hint: str) -> None:
    with pytest.raises(ds.DeviceSpecError, match="a device index is an integer, not") as caught:
        ds.Device("cuda", index)  # type: ignore[arg-type]
    assert caught.value.hint == hint


@pytest.mark.parametrize(("index", "nearest"), [(-1, 0), (-(10**30), 0), (65536, 65535), (10**30, 65535)])
def test_an_index_out_of_range_names_the_nearest(index: int, nearest: int) -> None:
    with pytest.raises(ds.DeviceSpecError, match="a device index is between 0 and 65535") as caught:
        ds.Device("gpu", index)
    assert caught.value.hint == f"did you mean 'gpu:{nearest}'?"


def test_a_lying_integer_makes_no_device_of_its_own() -> None:
    """A subclass of int may compare as it likes; the device stores its actual number."""

    class Liar(int):
        def __le__(self, other: object) -> bool:
            return True

        __lt__ = __ge__ = __gt__ = __le__

    with pytest.raises(ds.DeviceSpecError):
        ds.gpu(Liar(-5))
    assert type(ds.gpu(Liar(3)).index) is int
    assert ds.gpu(Liar(3)) is ds.gpu(3)


def test_threads_that_make_one_device_get_one_object() -> None:
    barrier, made = threading.Barrier(8), []

    def make() -> None:
        barrier.wait()
        made.append([ds.Device("hpu", 40000 + i) for i in range(200)])

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(one is other for others in made[1:] for one, other in zip(made[0], others, strict=True))


def test_native_is_the_backends_own(fake: object, device_object: type) -> None:
    assert ds.cpu().native("numpy") == "cpu"
    native = ds.gpu(1).native("fakeframe")
    assert type(native) is device_object
    assert native.number == 1
    with ds.using("fakeframe"):
        assert type(ds.gpu(0).native()) is device_object


def test_format_specs_are_those_of_its_text() -> None:
    card = ds.gpu(1)
    assert (f"{card}", f"{card:>8}", f"{card:_^9}", f"{card:.3}", f"{ds.cpu()!s:<5}|") == (
        *("gpu:1", "   gpu:1", "__gpu:1__", "gpu"),
        "cpu  |",
    )
    with pytest.raises(ValueError, match="format code"):
        f"{card:d}"


def test_a_device_equals_no_text_and_its_hash_agrees_with_that() -> None:
    """Equality with one spelling would need equal hashes, and a device has many spellings."""
    card = ds.gpu(1)
    for text in ("gpu:1", "cuda:1", "GPU:1"):
        assert card != text
        assert text not in {card: 0}
        assert text not in [card]
        assert ds.device(text) in {card}
        assert ds.device(text) == card
