"""Tests of the fast paths of `convert`: taken for plain tensors without an observer, and for nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import devshim as ds
from devshim.contract.fast_paths import FastPaths
from devshim.devices.device import CPU
from devshim.interop import convert
from devshim.registry import registry
from devshim.transfers import dlpack

PLAIN = np.arange(6.0).reshape(2, 3)


class Made:
    """The requests to the fictitious framework's fast paths, and whether they answer."""

    def __init__(self, fake: Any) -> None:
        self.fake, self.views, self.borrowed, self.answers = fake, 0, 0, True

    def view(self, x: Any) -> Any:
        self.views += 1
        return np.asarray(x) if self.answers else None

    def borrow(self, capsule: Any, dtype: str, shape: tuple[int, ...]) -> Any:
        self.borrowed += 1
        if not self.answers:
            return None
        # An unversioned capsule cannot declare that it is writable, so NumPy makes the array read-only.
        got = np.from_dlpack(dlpack.Exporter((dlpack.CPU, 0), lambda stream: capsule))
        assert (got.dtype.name, got.shape) == (dtype, shape)
        return self.fake.to_device(got, CPU)


@pytest.fixture
def made(fake: Any, monkeypatch: pytest.MonkeyPatch) -> Made:
    """Return the fictitious framework with fast paths to and from NumPy, none of them learned yet."""
    found = Made(fake)
    kind = type(fake.to_device(PLAIN, CPU))
    monkeypatch.setattr(convert, "_FAST_PATHS", {})
    paths = FastPaths(numpy_view={kind: found.view}, dlpack_import=found.borrow)
    monkeypatch.setattr(fake, "fast_paths", paths)
    return found


@pytest.fixture
def long_ways(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return the list of objects that took the slow path."""
    gone: list[object] = []
    proper = convert._Conversion

    def noted(*args: Any) -> Any:
        gone.append(args[3])
        return proper(*args)

    monkeypatch.setattr(convert, "_Conversion", noted)
    return gone


def test_the_first_of_a_kind_goes_the_long_way_and_the_others_do_not(made: Made, long_ways: list[object]) -> None:
    for _ in range(3):
        y = ds.convert(PLAIN, "fakeframe")
        ds.convert(made.fake.to_device(PLAIN, CPU), "numpy", copy=False)
    assert np.shares_memory(y, PLAIN)
    assert (made.borrowed, made.views, len(long_ways)) == (2, 2, 2)


@pytest.mark.parametrize("device", [None, CPU, "cpu"])
def test_the_hosts_names_lead_there_as_well(device: Any, made: Made, long_ways: list[object]) -> None:
    for _ in range(2):
        ds.convert(PLAIN, "fakeframe", device, copy=None)
    assert len(long_ways) == 1


def test_a_nickname_and_no_name_at_all(fake: Any, made: Made, long_ways: list[object]) -> None:
    x = fake.to_device(PLAIN, CPU)
    for _ in range(2):
        assert type(ds.convert(x, "np")) is np.ndarray
        assert type(ds.convert(x)) is np.ndarray  # the current backend is NumPy
    assert len(long_ways) == 2


@pytest.mark.parametrize("opened", [lambda: ds.explain(file=None), ds.transfers, lambda: ds.guard("error")])
def test_whoever_watches_sees_the_long_way(
    opened: Callable[[], Any], made: Made, long_ways: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    ds.convert(PLAIN, "fakeframe")
    for _ in range(2):
        with opened() as seen:
            ds.convert(PLAIN, "fakeframe")
    assert made.borrowed == 0
    assert len(long_ways) == 3
    assert seen is None or not isinstance(seen, list) or len(seen) == 1
    ds.convert(PLAIN, "fakeframe")
    assert made.borrowed == 1


def test_a_fault_is_met_after_a_short_cut(made: Made) -> None:
    ds.convert(PLAIN, "fakeframe")
    ds.convert(PLAIN, "fakeframe")
    ds.simulate(1, faults=[ds.Fault("gpu:0", "copy")])
    long = made.borrowed
    ds.convert(PLAIN, "fakeframe")
    assert made.borrowed == long


def test_devices_and_arguments_are_checked_after_a_short_cut(made: Made) -> None:
    for _ in range(2):
        ds.convert(PLAIN, "fakeframe")
    for copy in (None, True, False):
        with pytest.raises(ds.DeviceNotFoundError):
            ds.convert(PLAIN, "fakeframe", "gpu:7", copy=copy)
    assert ds.device_of(ds.convert(PLAIN, "fakeframe", "gpu:1")) is ds.gpu(1)
    with pytest.raises(ds.CopyNeededError):
        ds.convert(PLAIN, "fakeframe", "gpu:1", copy=False)
    assert not np.shares_memory(ds.convert(PLAIN, "fakeframe", copy=True), PLAIN)
    for copy in (0, 1, "no"):
        with pytest.raises(ds.ArgumentError, match="copy"):
            ds.convert(PLAIN, "fakeframe", copy=copy)  # type: ignore[arg-type]
    for name in (["fakeframe"], 3, "nobody"):
        with pytest.raises(ds.BackendNotFoundError):
            ds.convert(PLAIN, name)  # type: ignore[arg-type]
    assert made.borrowed == 1


def test_what_gives_no_answer_or_raises_goes_the_long_way(made: Made, long_ways: list[object]) -> None:
    x = made.fake.to_device(PLAIN, CPU)
    for _ in range(2):
        ds.convert(PLAIN, "fakeframe")
        ds.convert(x, "numpy")
    made.answers = False
    long_ways.clear()
    assert np.array_equal(ds.convert(PLAIN, "fakeframe"), PLAIN)
    assert np.array_equal(ds.convert(x, "numpy"), PLAIN)
    made.fake.to_device = None  # which `borrow` calls
    made.answers = True
    with pytest.raises(TypeError):  # the slow path's own error, with the same cause
        ds.convert(PLAIN, "fakeframe")
    assert len(long_ways) == 3


def test_nothing_immutable_is_lent_to_who_would_write(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    numpy = registry.load("numpy")
    monkeypatch.setattr(type(made.fake), "immutable", False)  # inherited from NumPy's adapter
    monkeypatch.setattr(type(numpy), "immutable", True)
    for _ in range(2):
        ds.convert(PLAIN, "fakeframe")
    assert made.borrowed == 0
    assert not convert._FAST_PATHS
    monkeypatch.setattr(type(made.fake), "immutable", True)
    for _ in range(2):
        ds.convert(PLAIN, "fakeframe")
    assert made.borrowed == 1


ODD: dict[str, Callable[[np.ndarray], Any]] = {
    "transposed": lambda a: a.T,
    "reversed": lambda a: a[::-1],
    "strided": lambda a: a[:, ::2],
    "broadcast": lambda a: np.broadcast_to(a[0], (2, 3)),
    "read-only": lambda a: np.frombuffer(a.tobytes()).reshape(2, 3),
    "big-endian": lambda a: a.astype(">f8"),
    "not aligned": lambda a: np.frombuffer(bytearray(b"0" + a.tobytes()), "f8", 6, 1).reshape(2, 3),
    "text": lambda a: a.astype(str),
    "objects": lambda a: a.astype(object),
    "records": lambda a: np.zeros(2, [("a", int)]),
    "a subclass": lambda a: a.view(type("Kin", (np.ndarray,), {})),
    "masked": lambda a: np.ma.masked_array(a, a > 2),
}


@pytest.mark.parametrize("odd", ODD)
def test_what_is_not_plain_is_not_lent(odd: str, made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the array itself decides, and not what was shared before."""
    lend = registry.load("numpy").fast_paths.dlpack_export[np.ndarray]
    for _ in range(2):
        ds.convert(PLAIN, "fakeframe")
    made.borrowed = 0
    x = ODD[odd](PLAIN.copy())
    if type(x) is np.ndarray:
        assert lend(x, 1) is None
    try:
        y = ds.convert(x, "fakeframe")
    except ds.ConversionError:
        assert odd in ("text", "objects", "records", "masked")
    else:
        assert np.array_equal(y, x)
    assert made.borrowed == 0
    ds.convert(PLAIN, "fakeframe")
    assert made.borrowed == 1


def test_an_array_on_a_card_is_not_lent(made: Made, cards: object) -> None:
    for _ in range(2):
        ds.convert(PLAIN, "fakeframe")
    x = ds.place(PLAIN, "gpu:1")
    made.borrowed = 0
    assert ds.device_of(ds.convert(x, "fakeframe")) is ds.gpu(1)
    with pytest.raises(ds.CopyNeededError, match="belongs to a simulated GPU"):
        ds.convert(x, "fakeframe", copy=False)
    assert made.borrowed == 0


@pytest.mark.parametrize("name", sorted(set(dlpack.FORMS) - {"bfloat16", "bool"}))
def test_a_plain_arrays_capsule_says_what_it_is(name: str) -> None:
    array = np.zeros((2, 3), name)
    capsule, dtype, shape = registry.load("numpy").fast_paths.dlpack_export[np.ndarray](array, 1)
    offered = dlpack.read(capsule)
    assert (dtype, shape) == (offered.dtype, offered.shape) == (name, (2, 3))
    assert offered.address == array.ctypes.data == dlpack.data_address(capsule)
    assert offered.is_contiguous


def test_memory_is_aligned_as_was_asked() -> None:
    lend = registry.load("numpy").fast_paths.dlpack_export[np.ndarray]
    raw = np.zeros(192, np.uint8)
    start = -raw.ctypes.data % 64
    for offset in (0, 1, 4, 16, 32, 63):
        x = raw[start + offset :][:8]
        for alignment in (1, 16, 64):
            assert (lend(x, alignment) is not None) is (offset % alignment == 0), (offset, alignment)


def test_the_address_counts_the_offset_and_nothing_is_no_address() -> None:
    array = np.zeros(4)
    capsule = array.__dlpack__()
    tensor = dlpack.managed_tensor(capsule).tensor
    tensor.data, tensor.byte_offset = tensor.data - 256, 256
    assert dlpack.data_address(capsule) == array.ctypes.data
    tensor.data, tensor.byte_offset = None, 0
    assert dlpack.data_address(capsule) == 0
    tensor.data = array.ctypes.data
