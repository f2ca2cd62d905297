"""Tests of several devices: `split` and `gather`, reductions, and callables that run on their input's device."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections import namedtuple
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes

import devshim as ds
from devshim.devices.device import CPU
from devshim.registry import registry

G0, G1, G2 = ds.gpu(0), ds.gpu(1), ds.gpu(2)
Pair = namedtuple("Pair", "x y")


@dataclass(frozen=True)
class Batch:
    inputs: Any
    name: str


@pytest.fixture(autouse=True)
def _cards() -> None:
    ds.simulate(3)


def values(tree: Any) -> Any:
    return ds.to_numpy(tree).tolist()


def used(device: ds.Device) -> int:
    gc.collect()
    return ds.memory(device).used or 0


def rows(n: int) -> np.ndarray:
    return np.arange(2.0 * n).reshape(n, 2)


# ---------------------------------------------------------------------- split
@pytest.mark.parametrize(
    ("length", "count", "balance", "drop"),
    [
        (7, 3, [3, 2, 2], [2, 2, 2]),
        (8, 3, [3, 3, 2], [2, 2, 2]),
        (6, 3, [2, 2, 2], [2, 2, 2]),
        (2, 3, [1, 1, 0], [0, 0, 0]),
        (0, 2, [0, 0], [0, 0]),
        (5, 1, [5], [5]),
    ],
)
def test_sizes(length: int, count: int, balance: list[int], drop: list[int]) -> None:
    x = rows(length)
    devices = [G0, G1, G2][:count]
    parts = ds.split(x, devices)
    assert [len(part) for part in parts] == balance
    assert [ds.device_of(part) for part in parts] == devices
    assert np.array_equal(np.concatenate([ds.to_numpy(part) for part in parts]), x)
    dropped = ds.split(x, devices, uneven="drop")
    assert [len(part) for part in dropped] == drop
    assert np.array_equal(np.concatenate([ds.to_numpy(part) for part in dropped]), x[: sum(drop)])
    if length % count:
        with pytest.raises(ds.ArgumentError, match=f"{length} rows cannot be split over {count} devices"):
            ds.split(x, devices, uneven="error")
    else:
        assert [len(part) for part in ds.split(x, devices, uneven="error")] == balance


@settings(max_examples=80)
@given(
    shape=array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=9),
    devices=st.lists(st.sampled_from([CPU, G0, G1, G2]), min_size=1, max_size=6),
    target=st.sampled_from([CPU, G0, G2]),
    data=st.data(),
)
def test_gather_is_the_inverse_of_split(shape: Any, devices: list[ds.Device], target: ds.Device, data: Any) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    dtype = data.draw(st.sampled_from(["float32", "int8", "bool", "complex64", "float64"]))
    x = ds.place(np.arange(int(np.prod(shape))).reshape(shape).astype(dtype), data.draw(st.sampled_from([CPU, G1])))
    parts = ds.split(x, devices, axis=axis)
    sizes = [part.shape[axis] for part in parts]
    assert sum(sizes) == shape[axis]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)
    assert [ds.device_of(part) for part in parts] == devices
    gathered = ds.gather(parts, target, axis)
    assert ds.device_of(gathered) is target
    assert gathered.dtype == x.dtype
    assert np.array_equal(ds.to_numpy(gathered), ds.to_numpy(x))


def test_a_tree_keeps_its_types_order_and_what_is_no_tensor() -> None:
    x = rows(5)
    tree = {"z": Batch(x, "first"), "a": Pair([x[:, 0]], (x, None)), 3: 7}
    parts = ds.split(tree, ["gpu:0", "cpu"])
    for part, size, device in zip(parts, (3, 2), (G0, CPU), strict=True):
        assert list(part) == ["z", "a", 3]
        assert type(part["z"]) is Batch
        assert type(part["a"]) is Pair
        assert (part["z"].name, part["a"].y[1], part[3]) == ("first", None, 7)
        assert part["a"].y[0] is part["z"].inputs, "a tensor that stands in two places is split once"
        assert ds.device_of(part["z"].inputs) is device
        assert len(part["a"].x[0]) == size
    gathered = ds.gather(parts, 2)
    assert type(gathered["z"]) is Batch
    assert np.array_equal(ds.to_numpy(gathered["a"].x[0]), x[:, 0])
    assert gathered["a"].y[0] is gathered["z"].inputs
    assert np.array_equal(tree["z"].inputs, rows(5)), "what went in is as it was"


@pytest.mark.parametrize("device", [CPU, G1])
def test_parts_copies_and_joined_tensors_share_no_memory_with_the_source(device: ds.Device) -> None:
    x = ds.place(rows(4), device)
    made = [*ds.split(x, [device, device]), *ds.split(x, [device]), *ds.broadcast(x, [device, device])]
    made += [ds.gather([x], device), *ds.replicate([x], [device])[0]]
    for each in made:
        each[...] = -1
    assert np.array_equal(ds.to_numpy(x), rows(4))
    assert len({id(each) for each in made}) == len(made)


def test_every_spelling_of_a_device_and_any_iterable() -> None:
    assert [ds.device_of(part) for part in ds.split(rows(4), iter(["cuda:1", 0, ds.cpu(), "/GPU:2"]))] == [
        G1,
        G0,
        CPU,
        G2,
    ]


@pytest.mark.parametrize("devices", ["gpu:0", G0, 0, [], None, (), 1.5])
@pytest.mark.parametrize("call", [ds.split, ds.broadcast, ds.replicate])
def test_one_device_alone_is_refused(call: Any, devices: Any) -> None:
    with pytest.raises(ds.ArgumentError, match=r"takes a list of devices, and was|empty list of devices"):
        call(rows(2), devices)


@pytest.mark.parametrize("call", [ds.split, ds.broadcast, ds.replicate])
def test_a_device_that_is_not_there_is_refused_before_anything_is_copied(call: Any) -> None:
    with ds.transfers() as log, pytest.raises(ds.DeviceNotFoundError, match="gpu:7"):
        call({"x": rows(4)}, [0, "gpu:7"])
    assert log.count == 0
    with pytest.raises(ds.DeviceSpecError):
        call(rows(2), ["gpux"])


WRONG_SPLITS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "lengths": (
        lambda: ds.split({"a": rows(3), "b": [rows(4)]}, [0, 1]),
        ds.ArgumentError,
        r"\['a'\] has 3.*\['b'\]\[0\] has 4",
    ),
    "no axes": (lambda: ds.split({"s": np.array(1.0)}, [0]), ds.ArgumentError, r"\['s'\] has the shape \(\)"),
    "axis": (lambda: ds.split(rows(3), [0], axis=2), ds.ArgumentError, "axis 2"),
    "negative axis": (lambda: ds.split(rows(3), [0], axis=-3), ds.ArgumentError, "axis -3"),
    "no axis": (lambda: ds.split(rows(3), [0], axis="x"), ds.ArgumentError, "axis is 'x'"),  # type: ignore[arg-type]
    "uneven": (lambda: ds.split(rows(3), [0], uneven="pad"), ds.ArgumentError, "'balance', 'error', 'drop'"),  # type: ignore[arg-type]
    "numbers": (lambda: ds.split([1, 2, 3], [0]), ds.NotATensorError, "no tensor in this list"),
    "nothing": (lambda: ds.split({}, [0]), ds.NotATensorError, "no tensor"),
    "gather nothing": (lambda: ds.gather([], 0), ds.ArgumentError, "no parts"),
    "gather keys": (lambda: ds.gather([{"a": rows(1)}, {"b": rows(1)}], 0), ds.ArgumentError, "part 1 has no 'a'"),
    "gather more": (
        lambda: ds.gather([{"a": rows(1)}, {"a": rows(1), "b": 1}], 0),
        ds.ArgumentError,
        "has the additional key 'b', unlike",
    ),
    "gather depth": (lambda: ds.gather([[rows(1)], rows(1)], 0), ds.ArgumentError, "part 1 has an ndarray, not a list"),
    "gather kinds": (lambda: ds.gather([[rows(1)], {"a": rows(1)}], 0), ds.ArgumentError, "part 1 has a dict"),
    "gather dtypes": (
        lambda: ds.gather([[rows(1)], [rows(1).astype("f4")]], 0),
        ds.ArgumentError,
        r"at \[0\]: part 0 has float64, part 1 has float32",
    ),
    "gather shapes": (
        lambda: ds.gather([rows(1), rows(1)[:, :1]], 0),
        ds.ArgumentError,
        r"except along axis 0: part 0 has \(1, 2\), part 1 has \(1, 1\)",
    ),
    "gather ranks": (lambda: ds.gather([rows(1), rows(1)[0]], 0), ds.ArgumentError, r"part 1 has \(2,\)"),
    "gather values": (
        lambda: ds.gather([{"l": 1.0}, {"l": 2.0}], 0),
        ds.ArgumentError,
        r"\['l'\] part 1 has 2.0 where part 0 has 1.0",
    ),
    "gather no tensor": (lambda: ds.gather([rows(1), 3], 0), ds.ArgumentError, "part 1 is a int"),
    "replicate text": (lambda: ds.replicate("model", [0]), ds.NotATensorError, "neither one nor a tensor"),
}


@pytest.mark.parametrize("name", WRONG_SPLITS)
def test_what_makes_no_sense_is_refused_and_named(name: str) -> None:
    call, error, reported = WRONG_SPLITS[name]
    with ds.transfers() as log, pytest.raises(error, match=reported) as caught:
        call()
    assert log.count == 0
    assert caught.value.hint  # type: ignore[attr-defined]


def test_the_same_values_beside_the_tensors_are_kept_nan_among_them() -> None:
    gathered = ds.gather([{"x": rows(1), "n": float("nan")}, {"x": rows(1), "n": float("nan")}], "cpu")
    assert gathered["n"] != gathered["n"]


def test_a_cycle_is_refused() -> None:
    tree: list[Any] = [rows(1)]
    tree.append(tree)
    for call in (lambda: ds.split(tree, [0]), lambda: ds.gather([tree], 0), lambda: ds.all_reduce_([tree, tree])):
        with pytest.raises(ds.ArgumentError, match="contains itself"):
            call()


def test_a_deep_tree_is_no_trouble() -> None:
    tree: Any = rows(2)
    for _ in range(3000):
        tree = [tree]
    gathered = ds.gather(ds.split(tree, [0, 1]), 0)
    for _ in range(3000):
        (gathered,) = gathered
    assert values(gathered) == rows(2).tolist()


def test_two_frameworks_in_one_tree(fake: Any) -> None:
    theirs = fake.to_device(np.arange(4.0), CPU)
    parts = ds.split({"ours": rows(4), "theirs": theirs}, [0, 1])
    assert [type(part["theirs"]).__name__ for part in parts] == ["Array", "Array"]
    assert [ds.device_of(part["theirs"]) for part in parts] == [G0, G1]
    with pytest.raises(ds.ArgumentError, match=r"part 0 is a tensor of NumPy, and part 1 one of Fakeframe"):
        ds.gather([rows(4), theirs], "cpu")


# ---------------------------------------------------------------------- failures in the middle
@pytest.mark.parametrize("what", ["allocation", "copy"])
@pytest.mark.parametrize("at", [1, 2])
def test_a_failure_releases_what_was_made_and_names_the_leaf(what: str, at: int) -> None:
    ds.simulate(3, faults=ds.Fault("gpu:1", what, at=at))
    tree = {"a": rows(30), "b": rows(30)}
    before = used(G0), used(G1)
    for call in (lambda: ds.split(tree, [0, 1]), lambda: ds.broadcast(tree, [0, 1])):
        ds.simulate(3, faults=ds.Fault("gpu:1", what, at=at))
        with pytest.raises((ds.OutOfMemoryError, ds.DeviceFailedError), match=r"gpu:1") as caught:
            call()
        assert ["'a'", "'b'"][at - 1] in str(caught.value)
        assert (used(G0), used(G1)) == before, "while the error is still held"


def test_a_full_card_when_gathering_and_reducing() -> None:
    parts = {"x": ds.split(rows(200), [0, 1])}["x"]
    before = used(G2)
    ds.simulate(3, memory=max(map(used, (G0, G1, G2))) + 1024)
    with pytest.raises(ds.OutOfMemoryError, match="gpu:2"):
        ds.gather(parts, "gpu:2")
    assert used(G2) == before
    kept = [ds.to_numpy(part) for part in parts]
    with pytest.raises(ds.OutOfMemoryError):
        ds.all_reduce_(parts)
    assert all(np.array_equal(ds.to_numpy(part), old) for part, old in zip(parts, kept, strict=True))


# ---------------------------------------------------------------------- all_reduce_
REDUCTIONS = {
    "sum": np.add.reduce,
    "max": np.maximum.reduce,
    "min": np.minimum.reduce,
    "mean": lambda v: sum(v) / len(v),
}


@pytest.mark.parametrize("op", REDUCTIONS)
@pytest.mark.parametrize("devices", [[G0, G1, G2], [CPU, G0, CPU], [CPU, CPU], [G1]])
def test_all_hold_the_result_in_place(op: Any, devices: list[ds.Device]) -> None:
    given = [np.array([[i, -3.5 * i], [0.0, i * i]]) for i in range(len(devices))]
    tensors = [ds.place(x, device, copy=True) for x, device in zip(given, devices, strict=True)]
    objects = list(tensors)
    assert ds.all_reduce_(tensors, op) is tensors
    assert all(a is b for a, b in zip(tensors, objects, strict=True))
    assert [ds.device_of(x) for x in tensors] == devices
    for x in tensors:
        assert values(x) == REDUCTIONS[op](given).tolist()


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16", "int8", "complex64"])
def test_a_sum_is_computed_in_order_and_in_the_dtype_of_the_tensors(dtype: str) -> None:
    given = [ds.asarray([1.0, 100.0, 3.0], dtype=dtype) for _ in range(3)]
    expected = given[0] + given[1] + given[2]
    tensors = ds.broadcast(given[0], [0, 1, "cpu"])
    ds.all_reduce_(tensors)
    for x in tensors:
        assert x.dtype == given[0].dtype
        assert ds.to_numpy(x).tobytes() == expected.tobytes()
    if dtype != "int8":
        means = ds.all_reduce_(ds.broadcast(given[0], [0, 1]), "mean")
        assert means[1].dtype == given[0].dtype
        assert values(means[1]) == values(given[0])


def test_order_decides_the_rounding() -> None:
    big, small = np.array([1e8], "f4"), np.array([1.0], "f4")
    assert values(ds.all_reduce_([big.copy(), -big, small.copy()])[0]) == [1.0]
    assert values(ds.all_reduce_([small.copy(), big.copy(), -big])[0]) == [0.0]


def test_without_axes_and_without_elements() -> None:
    scalars = [ds.asarray(2.0, device=0), ds.asarray(3.0, device=1)]
    assert values(ds.all_reduce_(scalars, "mean")[1]) == 2.5
    nothing = ds.all_reduce_([np.zeros((0, 3)), np.zeros((0, 3))])
    assert nothing[0].shape == (0, 3)


def test_trees_are_reduced_by_their_names_and_ties_once() -> None:
    tied = [ds.asarray([1.0], device=0), ds.asarray([10.0], device=1)]
    trees = [{"w": tied[i], "again": [tied[i]], "b": ds.asarray([float(i)], device=i), "n": i} for i in range(2)]
    ds.all_reduce_(trees)
    for i, tree in enumerate(trees):
        assert tree["w"] is tied[i]
        assert (values(tree["w"]), values(tree["b"]), tree["n"]) == ([11.0], [1.0], i)


def test_the_same_tensor_twice_counts_twice() -> None:
    x = np.array([2.0])
    ds.all_reduce_([x, x])
    assert values(x) == [4.0]


def test_views_are_written_through() -> None:
    base = np.ones(6)
    ds.all_reduce_([base[:3], base[3:]])
    assert base.tolist() == [2.0] * 6


def test_entries_are_replaced_where_tensors_cannot_be_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = registry.load("numpy")
    monkeypatch.setattr(type(backend), "immutable", True)
    given = [{"g": ds.asarray([1.0], device=i), "n": i} for i in range(2)]
    olds, trees = [tree["g"] for tree in given], list(given)
    assert ds.all_reduce_(trees, "sum") is trees
    assert [values(tree["g"]) for tree in trees] == [[2.0], [2.0]]
    assert [ds.device_of(tree["g"]) for tree in trees] == [G0, G1]
    assert [values(old) for old in olds] == [[1.0], [1.0]]
    assert given[0]["g"] is olds[0], "the trees themselves are not written to"
    assert [tree["n"] for tree in trees] == [0, 1]


def read_only() -> np.ndarray:
    x = np.ones(2)
    x.flags.writeable = False
    return x


WRONG_REDUCTIONS: dict[str, tuple[Callable[[], Any], str]] = {
    "tuple": (lambda: ds.all_reduce_((np.ones(2), np.ones(2))), "a list of tensors"),  # type: ignore[arg-type]
    "empty": (lambda: ds.all_reduce_([]), "an empty list"),
    "op": (lambda: ds.all_reduce_([np.ones(2)], "prod"), "'sum', 'mean', 'max', 'min'"),  # type: ignore[arg-type]
    "shapes": (lambda: ds.all_reduce_([np.ones(2), np.ones(3)]), r"tensor 0 has \(2,\), tensor 1 has \(3,\)"),
    "dtypes": (lambda: ds.all_reduce_([np.ones(2), np.ones(2, int)]), "tensor 0 has float64, tensor 1 has int64"),
    "mean of ints": (lambda: ds.all_reduce_([np.ones(2, int)] * 2, "mean"), "mean of int64 tensors in int64"),
    "bools": (lambda: ds.all_reduce_([np.ones(2, bool)] * 2, "max"), "max of bool"),
    "complex": (lambda: ds.all_reduce_([np.ones(2, complex)] * 2, "max"), "max of complex128"),
    "read-only": (lambda: ds.all_reduce_([np.ones(2), read_only()]), "tensor 1 is read-only"),
    "read-only in a tree": (
        lambda: ds.all_reduce_([{"a": np.ones(2)}, {"a": read_only()}]),
        r"at \['a'\] is read-only",
    ),
    "structure": (lambda: ds.all_reduce_([{"a": np.ones(2)}, {"b": np.ones(2)}]), "tensor 1 has no 'a'"),
    "no tensor": (lambda: ds.all_reduce_([np.ones(2), 3.0]), "tensor 1 is a float"),
    "half a tie": (lambda: ds.all_reduce_(half_tied()), "is summed with other tensors elsewhere"),
}


def half_tied() -> list[Any]:
    x = np.ones(2)
    return [[x, x], [np.ones(2), np.ones(2)]]


@pytest.mark.parametrize("name", WRONG_REDUCTIONS)
def test_what_cannot_be_reduced_is_refused_and_named(name: str) -> None:
    call, reported = WRONG_REDUCTIONS[name]
    with ds.transfers() as log, pytest.raises(ds.ArgumentError, match=reported):
        call()
    assert log.count == 0


def test_numbers_are_not_reduced() -> None:
    with pytest.raises(ds.NotATensorError):
        ds.all_reduce_([1.0, 2.0])


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_reduction_that_fails_changes_nothing(at: int) -> None:
    trees = [{"a": ds.asarray([float(i)], device=i), "b": ds.asarray([2.0], device=i)} for i in range(3)]
    ds.simulate(3, faults=ds.Fault("gpu:2", "copy", at=at))
    with pytest.raises(ds.DeviceFailedError, match=rf"gpu:2.*\['{'aab'[at - 1]}'\]"):
        ds.all_reduce_(trees)
    assert [[values(tree["a"]), values(tree["b"])] for tree in trees] == [[[float(i)], [2.0]] for i in range(3)]


def test_the_frameworks_own_engine_is_asked_where_all_are_on_cards_of_their_own(fake: Any) -> None:
    asked: list[tuple[list[ds.Device], str]] = []
    engine = type(fake)
    kept = engine.all_reduce

    def all_reduce(self: Any, xs: Any, op: str) -> Any:
        asked.append(([ds.device_of(x) for x in xs], op))
        total = sum(np.asarray(x) for x in xs)
        return [self.to_device(np.array(total), ds.device_of(x)) for x in xs]

    engine.all_reduce = all_reduce
    try:
        on = lambda *devices: [fake.to_device(np.array([i + 1.0]), device) for i, device in enumerate(devices)]  # noqa: E731
        cards = ds.all_reduce_(on(G0, G1))
        assert [values(x) for x in cards] == [[3.0], [3.0]]
        assert asked == [([G0, G1], "sum")]
        for devices in ((G0, CPU), (G1, G1), (CPU, CPU)):
            assert [values(x) for x in ds.all_reduce_(on(*devices))] == [[3.0], [3.0]]
        assert len(asked) == 1
        engine.all_reduce = lambda self, xs, op: [xs[0]] * len(xs)
        with pytest.raises(ds.PlacementError, match="gpu:1"):
            ds.all_reduce_(on(G0, G1))
    finally:
        engine.all_reduce = kept


# ---------------------------------------------------------------------- parallel
def test_results_are_in_order_and_each_ran_where_its_input_is() -> None:
    parts = ds.split(rows(7), [0, 1, 2])

    def work(x: Any) -> Any:
        time.sleep(0.05 * (2 - ds.device_of(x).index))
        return x.sum(), ds.device_of(ds.zeros(1)), threading.current_thread()

    results = ds.parallel([work] * 3, parts)
    assert [float(total) for total, _, _ in results] == [float(part.sum()) for part in parts]
    assert [device for _, device, _ in results] == [G0, G1, G2]
    assert len({thread for _, _, thread in results} - {threading.current_thread()}) == 3


def test_callables_run_at_the_same_time() -> None:
    meeting = threading.Barrier(3, timeout=10)
    assert len(ds.parallel([lambda x: meeting.wait()] * 3, [None] * 3)) == 3


def test_callables_run_in_turn_where_autograd_sees_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(registry.load("numpy")), "autograd_crosses_threads", lambda self: False)
    called: list[Any] = []

    def work(given: Any) -> Any:
        called.append(given)
        ds.set_device("gpu:2")  # does not reach the next call
        return threading.current_thread(), ds.device_of(ds.zeros(1))

    with ds.explain(file=None) as lines:
        assert ds.parallel([work] * 3, [1, 2, 3]) == [(threading.current_thread(), G2)] * 3
    assert (called, ds.device_of(ds.zeros(1))) == ([1, 2, 3], CPU)
    assert lines[0] == "results = [f(x) for f, x in zip(fns, inputs)]"
    with pytest.raises(ValueError, match=r"bad \(in callable 0 of ds.parallel, on gpu:1\)"):
        ds.parallel([raising(ValueError("bad")), called.append], [ds.ones(1, device=1), 4])
    assert called[-1] == 4
    with pytest.raises(KeyboardInterrupt):
        ds.parallel([raising(KeyboardInterrupt()), called.append], [5, 5])
    assert called[-1] == 4


def test_an_input_is_passed_as_it_is_and_outside_on_counts_without_tensors() -> None:
    pair = (rows(1), "name")
    assert ds.parallel([lambda given: given], [pair])[0] is pair
    with ds.on("gpu:2"):
        assert ds.parallel([lambda given: ds.device_of(ds.zeros(1))] * 2, [None, rows(1)]) == [G2, CPU]
    assert ds.parallel([lambda given: ds.device_of(ds.zeros(1))], [None]) == [CPU]
    assert ds.parallel([], []) == []


def test_the_callers_context_holds_in_the_threads(fake: Any) -> None:
    with ds.using("fakeframe"), ds.explain(file=None) as lines:
        made = ds.parallel([lambda given: type(ds.zeros(1)).__name__], [None])
    assert made == ["Array"]
    assert lines
    with np.errstate(divide="ignore"):
        assert ds.parallel([lambda given: np.ones(1) / 0], [None])[0][0] == np.inf
    assert type(ds.parallel([lambda given: ds.zeros(1)], [None])[0]) is np.ndarray


def test_a_modes_context_is_entered_in_each_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    @contextmanager
    def mode() -> Any:
        seen.append(threading.current_thread())
        yield
        seen.append(threading.current_thread())

    monkeypatch.setattr(type(registry.load("numpy")), "capture_thread_state", lambda self: mode)
    threads = ds.parallel([lambda given: threading.current_thread()] * 2, [1, 2])
    assert sorted(map(id, seen)) == sorted(map(id, threads * 2))


class Peculiar(Exception):
    def __str__(self) -> str:
        return "always this"


def raising(error: BaseException) -> Callable[[Any], Any]:
    def fn(given: Any) -> Any:
        raise error

    return fn


@pytest.mark.parametrize(
    "error",
    [
        ValueError("bad"),
        ValueError(),
        KeyError("k"),
        OSError(2, "gone"),
        KeyboardInterrupt(),
        SystemExit("x"),
        ds.ArgumentError("bad", "hint"),
    ],
    ids=repr,
)
def test_the_first_failure_names_its_device_and_stays_what_it_is(error: BaseException) -> None:
    ended: list[int] = []

    def slow(given: Any) -> None:
        time.sleep(0.2)
        ended.append(1)

    with pytest.raises(type(error)) as caught:
        ds.parallel([slow, raising(error), raising(TypeError("later"))], ds.split(rows(3), [0, 1, 2]))
    assert caught.value is error
    assert "callable 1 of ds.parallel, on gpu:1" in str(error)
    assert any("callable 2" in note and "gpu:2" in note and "TypeError: later" in note for note in error.__notes__)
    assert ended == [1], "the others were waited for"
    error.__traceback__ = error.__context__ = None  # pytest keeps the parameter, and with it everything on the GPUs


def test_a_text_that_cannot_be_added_to_gets_a_note() -> None:
    with pytest.raises(Peculiar) as caught:
        ds.parallel([raising(Peculiar(3, 4))], [ds.asarray([1.0], device=1)])
    assert caught.value.args == (3, 4)
    assert caught.value.__notes__ == ["in callable 0 of ds.parallel, on gpu:1"]


def test_an_error_raised_again_does_not_grow() -> None:
    error = ValueError("bad")
    for _ in range(2):
        with pytest.raises(ValueError, match="bad"):
            ds.parallel([raising(error)], [ds.asarray([1.0], device=1)])
    assert str(error) == "bad (in callable 0 of ds.parallel, on gpu:1)"


def test_calls_that_make_no_sense_call_nobody() -> None:
    called: list[Any] = []
    mixed = {"a": ds.asarray([1.0], device=0), "b": ds.asarray([1.0], device=1)}
    with pytest.raises(ds.ArgumentError, match="2 callables and 1 input"):
        ds.parallel([called.append] * 2, [1])
    with pytest.raises(ds.ArgumentError, match=r"fns\[1\] is 3"):
        ds.parallel([called.append, 3], [1, 2])  # type: ignore[list-item]
    with pytest.raises(ds.DeviceMismatchError, match=r"ds.parallel.*inputs\[1\]\['a'\] is on gpu:0"):
        ds.parallel([called.append] * 2, [1, mixed])
    assert called == []


def test_nothing_is_kept_of_a_failure() -> None:
    before = used(G1)
    with pytest.raises(ValueError, match="bad"):
        ds.parallel([raising(ValueError("bad")), lambda x: x * 2], ds.split(rows(100), [0, 1]))
    assert used(G1) == before


def test_inside_an_asyncio_task() -> None:
    async def task() -> Any:
        with ds.on("gpu:1"):
            return ds.parallel([lambda x: ds.device_of(ds.zeros(1))] * 2, [None, rows(1)])

    assert asyncio.run(task()) == [G1, CPU]


# ---------------------------------------------------------------------- all of them together
def step(weights: Any, inputs: Any, labels: Any, total: int) -> Any:
    """Return these rows' part of the gradient of the mean squared error of all rows."""
    return 2.0 * inputs.T @ (inputs @ weights - labels) / total


@pytest.mark.parametrize("devices", [[G0, G1, G2], [CPU, G1], [CPU] * 4, [G2]])
def test_training_on_several_devices_is_training_on_one(devices: list[ds.Device]) -> None:
    ds.random.seed(3)
    inputs, truth = ds.random.normal(size=(23, 4)), ds.random.normal(size=(4, 2))
    labels = inputs @ truth
    alone = ds.zeros((4, 2))
    replicas = ds.replicate(alone, devices)
    for start in range(0, 23, 8):  # the last batch has 7 rows
        x, y = inputs[start : start + 8], labels[start : start + 8]
        alone -= 0.05 * step(alone, x, y, len(x))
        shards = [(w, shard, len(x)) for w, shard in zip(replicas, ds.split((x, y), devices), strict=True)]
        work = [lambda given: step(given[0], *given[1], given[2])] * len(devices)
        gradients = ds.all_reduce_(ds.parallel(work, shards))
        for w, gradient in zip(replicas, gradients, strict=True):
            w -= 0.05 * gradient
    for w, device in zip(replicas, devices, strict=True):
        assert ds.device_of(w) is device
        np.testing.assert_allclose(ds.to_numpy(w), alone, rtol=1e-12)
        assert ds.to_numpy(w).tobytes() == ds.to_numpy(replicas[0]).tobytes(), "replicas never drift apart"


def test_a_model_is_named_with_its_place(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    net = type("Net", (), {"__module__": "fakeframe"})
    monkeypatch.setattr(fake, "is_model", lambda cls: cls is net, raising=False)
    monkeypatch.setattr(type(fake), "gaps", {name: gap for name, gap in fake.gaps.items() if name != "models"})
    with pytest.raises(ds.ArgumentError, match=r"^ds\.split cuts tensors up, and this is a Net\b"):
        ds.split(net(), [0, 1])
    with pytest.raises(ds.ArgumentError, match=r"^ds\.split cuts tensors up, and \['a'\]\[1\] is a Net\b"):
        ds.split({"a": [rows(2), net()]}, [0, 1])
