"""Tests of simulated GPUs on NumPy: arrays keep their device, mixing is refused, and memory is counted."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import threading
from collections import deque, namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import devshim as ds
from devshim.simulation.memory import ROUND

G0, G1 = ds.gpu(0), ds.gpu(1)
HOST = np.ones((3, 4))
ZERO_D = np.array(2.0)


@pytest.fixture(autouse=True)
def _cards(cards: object) -> None:
    """Use two simulated GPUs."""


@pytest.fixture
def x() -> Any:
    return ds.asarray(np.arange(12.0).reshape(3, 4) + 1, device=0)


def used(device: ds.Device = G0) -> int:
    gc.collect()
    found = ds.memory(device).used
    assert found is not None
    return found


RESULTS: dict[str, Callable[[Any], Any]] = {
    **{
        name: lambda x, name=name: getattr(x, name)()
        for name in (
            *("copy", "flatten", "ravel", "squeeze", "transpose", "conj", "nonzero", "sum", "mean", "std", "prod"),
            *("min", "argmax", "argsort", "cumsum", "round", "all", "any", "diagonal", "trace", "byteswap"),
        )
    },
    "element": lambda x: x[1, 2],
    "row": lambda x: x[1],
    "slice": lambda x: x[1:, ::2],
    "index list": lambda x: x[[0, 2]],
    "index host": lambda x: x[np.array([0, 2])],
    "index columns": lambda x: x[:, np.array([0, 2])],
    "index card": lambda x: x[ds.asarray([0, 2], device=0)],
    "mask": lambda x: x[x > 3],
    "newaxis": lambda x: x[None, ..., None],
    "view of a view": lambda x: x.T[1:].T.reshape(3, 1, 3)[:2],
    "add": lambda x: x + x,
    "number": lambda x: 2 - x,
    "0-d host": lambda x: x * ZERO_D,
    "matmul": lambda x: x @ x.T,
    "compare": lambda x: x == x,
    "divmod": lambda x: divmod(x, 2),
    "modf": lambda x: np.modf(x),
    "concatenate": lambda x: np.concatenate([x, x]),
    "stack": lambda x: np.stack((x, x)),
    "where": lambda x: np.where(x > 3, x, 0),
    "einsum": lambda x: np.einsum("ij,ij->i", x, x),
    "svd": lambda x: np.linalg.svd(x),
    "eigh": lambda x: np.linalg.eigh(x @ x.T),
    "slogdet": lambda x: np.linalg.slogdet(x @ x.T + np.float64(1)),
    "inv": lambda x: np.linalg.inv(x[:3, :3] + ds.eye(3, device=0)),
    "fft": lambda x: np.fft.fft(x),
    "astype": lambda x: x.astype("float32"),
    "unique": lambda x: np.unique(x, return_counts=True),
    "sort": lambda x: np.sort(x),
    "broadcast": lambda x: np.broadcast_to(x, (2, 3, 4)),
    "split": lambda x: np.split(x, 3),
    "dot": lambda x: x.dot(x.T),
    "take": lambda x: x.take(1),
    "reduce": lambda x: np.add.reduce(x),
    "outer": lambda x: np.add.outer(x, x),
    "zeros_like": lambda x: np.zeros_like(x),
    "deepcopy": lambda x: copy.deepcopy(x),
    "iteration": lambda x: list(x[0]),
    "real": lambda x: (x + 1j).imag,
}


@pytest.mark.parametrize("name", RESULTS)
def test_results_are_on_the_card_and_counted(name: str, x: Any) -> None:
    before = used()
    results = RESULTS[name](x)
    parts = results if isinstance(results, (tuple, list)) else (results,)
    owners = {}
    for part in parts:
        assert ds.device_of(part) is G0
        owner = part
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        owners[id(owner)] = -(-owner.nbytes // ROUND) * ROUND
    own = x.base
    fresh = sum(size for key, size in owners.items() if key != id(own))
    del owner, own, part
    assert used() - before == fresh
    del results, parts
    assert used() == before


REFUSED: dict[str, Callable[[Any], Any]] = {
    "card + host": lambda x: x + HOST,
    "host + card": lambda x: HOST + x,
    "other card": lambda x: x + ds.place(x, 1),
    "other card's element": lambda x: x + ds.place(x, 1)[0, 0],
    "element + host": lambda x: x[0, 0] + HOST,
    "matmul": lambda x: x @ HOST.T,
    "dot": lambda x: x.dot(HOST.T),
    "concatenate": lambda x: np.concatenate([x, HOST]),
    "nested": lambda x: np.block([[x], [HOST]]),
    "where": lambda x: np.where(HOST > 0, x, x),
    "where argument": lambda x: np.add(x, x, where=HOST > 0),
    "clip": lambda x: x.clip(HOST, None),
    "out": lambda x: np.add(x, x, out=np.empty((3, 4))),
    "out 0-d": lambda x: np.add(x[0, 0], 1, out=np.empty(())),
    "out of a function": lambda x: np.dot(x, x.T, out=np.empty((3, 3))),
    "out on a card": lambda x: np.add(HOST, HOST, out=x),
    "copyto": lambda x: np.copyto(x, HOST),
    "copyto host": lambda x: np.copyto(np.empty((3, 4)), x),
    "assignment": lambda x: x.__setitem__(..., HOST),
    "assignment from another": lambda x: x.__setitem__(0, ds.place(x, 1)[0]),
    "index of another": lambda x: x[ds.asarray([0], device=1)],
    "+= host": lambda x: x.__iadd__(HOST),
    "host += card": lambda x: HOST.copy().__iadd__(x),
    "at": lambda x: np.add.at(x, np.array([0]), 1.0),
    "allclose": lambda x: np.allclose(x, HOST),
    "solve": lambda x: np.linalg.solve(x[:3, :3], np.eye(3)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_mixing_is_refused_and_nothing_is_changed(name: str, x: Any) -> None:
    before = ds.to_numpy(x)
    with pytest.raises(ds.DeviceMismatchError):
        REFUSED[name](x)
    assert np.array_equal(ds.to_numpy(x), before)


def test_in_place(x: Any) -> None:
    before, data = used(), x.__array_interface__["data"]
    x += x
    x *= 2
    x[0] = 7
    x[1] = x[2]
    x[:, 0] = ZERO_D
    np.add(x, 1, out=x)
    assert np.cumsum(x, axis=0, out=x) is x
    assert x.__array_interface__["data"] == data
    assert ds.device_of(x) is G0
    assert used() == before
    parts = np.modf(x, out=(x, None))
    assert parts[0] is x
    assert ds.device_of(parts[1]) is G0


def test_an_element_behaves_as_a_number(x: Any) -> None:
    element = x[0, 1]
    assert (float(element), int(element), bool(element), f"{element:.1f}") == (2.0, 2, True, "2.0")
    assert element == 2
    assert [10, 20, 30][ds.asarray(1, device=0)] == 20
    with pytest.raises(TypeError, match="0-d"):
        iter(element)


def test_shuffling_and_questions(x: Any) -> None:
    np.random.shuffle(x)
    np.random.default_rng(0).shuffle(x)
    assert sorted(x[:, 0].tolist()) == [1, 5, 9]
    assert not np.may_share_memory(x, HOST)
    assert np.shares_memory(x, x[1:])
    assert np.array_equal(x, x)
    assert np.shape(x) == (3, 4)


def test_what_leaves_the_process_is_host_data(x: Any) -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        found = pickle.loads(pickle.dumps(x, protocol))
        assert type(found) is np.ndarray
        assert np.array_equal(found, ds.to_numpy(x))
    np.save(file := io.BytesIO(), x)
    file.seek(0)
    assert type(np.load(file)) is np.ndarray


class Rows(list):  # type: ignore[type-arg]
    """A subclass of a list."""


@pytest.mark.parametrize(
    "collect",
    [namedtuple("Pair", "a b"), lambda *xs: Rows(xs), lambda *xs: deque(xs), lambda *xs: dict(enumerate(xs)).values()],
    ids=["named tuple", "list", "deque", "dict"],
)
def test_functions_take_arrays_in_any_sequence(collect: Callable[..., Any], x: Any) -> None:
    """NumPy finds the arrays there, and without their labels removed it would call the simulation without end."""
    joined = np.concatenate(collect(x, x))
    assert ds.device_of(joined) is G0
    assert joined.shape == (6, 4)
    with pytest.raises(ds.DeviceMismatchError):
        np.concatenate(collect(x, ds.place(x, 1)))


def test_an_array_like_another_is_on_its_gpu(x: Any) -> None:
    """``like=``, which CuPy follows, too."""
    host, there = np.ones(3), ds.place(x, 1)
    for made in (np.ones(3, like=there), np.asarray([1, 1, 1], like=there), np.asarray(host, like=there)):
        assert ds.device_of(made) is G1
        assert made.tolist() == [1, 1, 1]
        assert not np.shares_memory(made, host)
    assert ds.device_of(host) is ds.cpu()


def test_there_and_back(x: Any) -> None:
    host = ds.place(x, "cpu")
    assert type(host) is np.ndarray
    assert not np.shares_memory(host, x)
    assert used(G1) == 0
    there = ds.place(host[:, 1:3], 1)
    assert used(G1) == ROUND > there.nbytes == 48


def test_an_array_says_that_its_gpu_is_simulated(x: Any) -> None:
    assert x.device == "gpu:0 (simulated)"
    assert repr(x).endswith("on gpu:0 (simulated)")
    assert "simulated" in ds.describe(0).name


@pytest.mark.parametrize(
    "array",
    [np.array([None, 1]), np.array(["a"]), np.zeros(2, [("a", "f4"), ("b", "i4")]), np.zeros(2, "V4")],
    ids=["object", "text", "structured", "bytes"],
)
def test_what_a_card_cannot_hold_is_refused(array: Any) -> None:
    with pytest.raises(ds.ConversionError, match="a GPU stores only plain numbers"):
        ds.place(array, 0)
    assert ds.place(array, "cpu") is array
    assert used() == 0


class _Named(np.ndarray):
    """A subclass with an attribute, as libraries of units have."""


@pytest.mark.parametrize(
    "array",
    [np.ma.masked_array([1.0, 2.0], [0, 1]), np.ones((2, 2)).view(np.matrix), np.ones(2).view(_Named)],
    ids=["masked", "matrix", "attribute"],
)
def test_a_subclass_is_refused_because_its_operators_would_change(array: Any) -> None:
    """``*`` of two matrices is their matrix product, and that of two arrays on a simulated GPU is not."""
    with pytest.raises(ds.ConversionError, match=f"{type(array).__name__} cannot be on gpu:0: .* lose the class"):
        ds.place(array, 0)
    assert ds.place(array, "cpu") is array
    assert used() == 0


def test_an_array_over_a_file_is_a_plain_array(tmp_path: Any) -> None:
    array = np.memmap(tmp_path / "numbers", "float32", "w+", shape=(3,))
    assert ds.device_of(ds.place(array, 0)) is G0


def test_a_card_runs_full_in_numpys_own_operators_too() -> None:
    with ds.simulate(1, memory=10_000):
        x = ds.zeros(1000, device=0, dtype="float64")
        full = r"gpu:0 is out of memory: (8,|16,)000 bytes were requested, 1,536 bytes are free"
        for call in (lambda: x + 1, lambda: x.copy(), lambda: np.concatenate([x, x]), lambda: x.astype("complex64")):
            with pytest.raises(MemoryError, match=full):
                call()
        assert ds.device_of(x[::2]) is G0
        with pytest.raises(ds.OutOfMemoryError, match=full):
            ds.copy(x, 0)
        assert ds.memory(0) == type(ds.memory(0))(total=10_000, used=8192, free=1536, peak=8192)


def test_the_peak_starts_again_with_the_simulation() -> None:
    ds.zeros(1000, device=1)
    with ds.simulate(2):
        assert ds.memory(1).peak == ds.memory(1).used == 0


def test_threads_lose_no_byte() -> None:
    def work() -> None:
        for i in range(300):
            x = ds.zeros(i + 1, device=1)
            del x

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert used(G1) == 0


def test_arrays_in_cycles_are_counted_until_they_are_collected() -> None:
    """The collector may run inside the count itself, so a release must not wait for it."""
    for _ in range(2000):
        cycle: list[Any] = [ds.zeros(10, device=1)]
        cycle.append(cycle)
    del cycle
    assert used(G1) == 0


def test_a_copy_does_not_import_what_masked_arrays_(monkeypatch: pytest.MonkeyPatch) -> None:
    """That import would add 20 ms to the first copy, which a ledger shows."""
    monkeypatch.setattr(np, "ma", None)
    there = ds.place(np.ones(3), "gpu:0")
    assert ds.to_numpy(there).sum() == 3
