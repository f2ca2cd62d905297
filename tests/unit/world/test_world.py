"""Tests of `World` with ranks that are threads: sums, trees, and ranks that disagree or are late."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import devshim as ds
from devshim.contract.ranks import Place
from devshim.devices.dtypes import numpy_dtype
from devshim.testing.thread_ranks import on_ranks
from devshim.world.world import World


class Pair(NamedTuple):
    first: Any
    second: Any


@pytest.fixture(autouse=True)
def _numpy() -> Iterator[None]:
    with ds.using("numpy"):
        yield


def in_ranks(size: int, job: Callable[[World], Any], timeout: float = 60.0) -> list[Any]:
    """Return what each rank returned, or the error that it raised; two ranks are on one host."""
    return on_ranks(size, job, timeout=timeout, hosts=tuple(f"host{rank // 2}" for rank in range(size)))


DTYPES = ("float16", "float32", "float64", "int8", "uint8", "int64", "complex64")
HAS_RESULT = [
    (dtype, op)
    for dtype in DTYPES
    for op in ("sum", "mean", "max", "min")
    if not (op == "mean" and "int" in dtype) and not (op in ("max", "min") and "complex" in dtype)
]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize(("dtype", "op"), HAS_RESULT)
def test_all_ranks_get_the_same_bits(size: int, dtype: str, op: Any) -> None:
    rng = np.random.default_rng(3)
    data = [(rng.normal(size=(7, 3)) * 20).astype(dtype) for _ in range(size)]

    def job(world: World) -> np.ndarray:
        (x,) = world.all_reduce_([data[world.rank].copy()], op)
        return x

    results = in_ranks(size, job)
    if "int" in dtype:
        expected = getattr(np.stack(data), op)(axis=0, **({"dtype": dtype} if op == "sum" else {}))
    else:
        expected = getattr(np.stack(data).astype("complex128" if "complex" in dtype else "float64"), op)(axis=0)
    rtol, atol = (2e-2, 1e-1) if dtype == "float16" else (1e-5, 1e-4)
    for each in results:
        assert each.dtype == dtype
        assert each.tobytes() == results[0].tobytes()
        np.testing.assert_allclose(each, expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("op", ["sum", "mean", "max", "min"])
def test_nan_and_infinity_are_results_without_warnings(dtype: str, op: Any) -> None:
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    values = [[np.nan, 1, np.inf, np.inf, 6e4], [1, np.nan, -np.inf, 1, 6e4]]
    first, second = np.array(values, numpy_dtype(dtype))
    with np.errstate(all="ignore"):
        expected = {"max": np.maximum, "min": np.minimum}.get(op, np.add)(first, second)
        expected = expected / 2 if op == "mean" else expected

    def job(world: World) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return world.all_reduce_([(first, second)[world.rank].copy()], op)[0].astype("float64")

    for found in in_ranks(2, job):
        np.testing.assert_array_equal(found, expected.astype("float64"))


def test_dtypes_of_one_byte_are_summed_apart() -> None:
    """NumPy has one text for both, ``<V1``; the second one ends at 30."""
    kinds = pytest.importorskip("ml_dtypes")
    first, second = np.dtype(kinds.float8_e4m3fn), np.dtype(kinds.float8_e4m3b11fnuz)

    def job(world: World) -> Any:
        (tree,) = world.all_reduce_([{"a": np.full(2, 128, first), "b": np.full(2, 3, second)}])
        return [tree["a"].astype("float32").tolist(), tree["b"].astype("float32").tolist()]

    assert in_ranks(2, job) == [[[256, 256], [6, 6]]] * 2


def test_trees_of_several_devices_are_summed_over_ranks() -> None:
    def job(world: World) -> Any:
        trees = [{"w": ds.full((2, 2), world.rank + i), "n": ds.zeros(0), "s": ds.asarray(1.0)} for i in (1.0, 2.0)]
        return world.all_reduce_(trees)

    for trees in in_ranks(2, job):
        assert len(trees) == 2
        for tree in trees:
            assert tree["w"].tolist() == [[8, 8], [8, 8]]
            assert tree["s"] == 4
            assert tree["n"].shape == (0,)


def test_the_mean_is_that_of_all_devices_of_all_ranks() -> None:
    def job(world: World) -> Any:
        return world.all_reduce_([ds.asarray([3.0]) for _ in range(world.rank + 1)], "mean")[0].tolist()

    assert in_ranks(2, job) == [[3.0], [3.0]]


def test_a_tensor_is_written_in_place() -> None:
    def job(world: World) -> bool:
        x = ds.ones(3)
        return world.all_reduce_([x])[0] is x and x.tolist() == [2, 2, 2]

    assert in_ranks(2, job) == [True, True]


class TwoArguments(Exception):
    """An error that pickles, and cannot be unpickled: its text is its only argument then."""

    def __init__(self, name: str, code: int) -> None:
        super().__init__(f"{name} {code}")


class NoPickle:
    def __reduce__(self) -> Any:
        raise TypeError("no pickle for this")


class OnlyHere:
    """An object that only its own rank can make of its bytes, as if another host lacked a module."""

    def __init__(self, rank: int = -1) -> None:
        if rank not in (-1, threading.get_ident()):
            raise ModuleNotFoundError("No module named 'theirs'")

    def __reduce__(self) -> Any:
        return OnlyHere, (threading.get_ident(),)


CALLS: dict[str, Callable[[World, Any], Any]] = {
    "broadcast": lambda world, value: world.broadcast(value if world.rank == 1 else None, root=1),
    "all_gather": lambda world, value: world.all_gather(value if world.rank == 1 else None),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (TwoArguments("x", 4), ds.ArgumentError, r"cannot be unpickled: TypeError: .*missing 1 required positional"),
        (NoPickle(), ds.ArgumentError, "cannot be pickled: TypeError: no pickle for this"),
        ({"x": np.ma.masked_array([1, 2], [0, 1])}, ds.ConversionError, "mask"),
    ],
)
def test_all_ranks_name_the_one_that_cannot_send_its_value(
    call: str, value: Any, kind: type[ds.DevshimError], text: str
) -> None:
    def job(world: World) -> list[str]:
        with pytest.raises(kind, match=text) as error:
            CALLS[call](world, value)
        return [error.value.problem, *world.all_gather(f"next {world.rank}")]

    for rank, (problem, *following) in enumerate(in_ranks(3, job, timeout=5)):
        assert following == ["next 0", "next 1", "next 2"]
        assert problem.startswith("rank 1 on host0 sent no value in step 1 (") is (rank != 1)


@pytest.mark.parametrize("call", CALLS)
def test_a_value_that_cannot_be_unpickled_on_another_rank_names_its_sender(call: str) -> None:
    for rank, error in enumerate(in_ranks(3, lambda world: CALLS[call](world, OnlyHere()), timeout=5)):
        if rank != 1:
            assert isinstance(error, ds.ConversionError)
            assert f"that rank 1 on host0 sent in step 1 ({call}" in str(error)
            assert "No module named 'theirs'" in str(error)


def test_a_rank_that_cannot_send_its_value_raises_its_own_error_if_another_is_late() -> None:
    def job(world: World) -> Any:
        world._engine().patience = 0.3
        return world.rank or world.all_gather(NoPickle())

    error, _ = in_ranks(2, job)
    assert isinstance(error, ds.ArgumentError)


def test_a_tree_is_broadcast_with_its_numbers_and_text() -> None:
    def job(world: World) -> Any:
        mine = Pair({"w": ds.full((2,), world.rank), "step": world.rank}, ["text", ds.zeros(1)])
        return world.broadcast(mine, root=1)

    for pair in in_ranks(3, job):
        assert type(pair) is Pair
        assert pair.first["w"].tolist() == [1, 1]
        assert pair.first["step"] == 1
        assert pair.second[0] == "text"


def test_a_rank_without_a_tree_receives_one() -> None:
    def job(world: World) -> Any:
        return world.broadcast({"x": ds.ones(2), "n": 5} if world.rank == 0 else None)

    for tree in in_ranks(2, job):
        assert tree["x"].tolist() == [1, 1]
        assert tree["n"] == 5


def test_gathered_trees_may_have_different_shapes() -> None:
    def job(world: World) -> Any:
        return [each["x"].tolist() for each in world.all_gather({"x": ds.ones(world.rank)})]

    assert in_ranks(3, job) == [[[], [1], [1, 1]]] * 3


def test_many_steps_follow_each_other() -> None:
    def job(world: World) -> float:
        total = 0.0
        for step in range(50):
            total += float(world.all_reduce_([ds.asarray([float(step)])])[0][0])
            world.broadcast(step, root=step % world.size)
            world.barrier()
        return total

    assert in_ranks(3, job) == [3.0 * sum(range(50))] * 3


@pytest.mark.parametrize(("length", "parts"), [(10, [4, 3, 3]), (2, [1, 1, 0]), (0, [0, 0, 0])])
def test_rows_are_parted_without_losing_one(length: int, parts: list[int]) -> None:
    slices = in_ranks(3, lambda world: world.part(length))
    assert [each.stop - each.start for each in slices] == parts
    assert [each.start for each in slices[1:]] == [each.stop for each in slices[:-1]]
    assert slices[-1].stop == length


@pytest.mark.parametrize("length", [-1, 2.0, True, None])
def test_rows_are_a_number(length: Any) -> None:
    with pytest.raises(ds.ArgumentError, match="length"):
        ds.world().part(length)


def other_shape(world: World) -> Any:
    return world.all_reduce_([ds.ones(2 + world.rank)])


def other_dtype(world: World) -> Any:
    return world.all_reduce_([ds.ones(2, dtype="int32" if world.rank else "float32")])


def other_op(world: World) -> Any:
    return world.all_reduce_([ds.ones(2)], "max" if world.rank else "sum")


def other_call(world: World) -> Any:
    return world.barrier() if world.rank else world.all_reduce_([ds.ones(2)])


def other_root(world: World) -> Any:
    return world.broadcast(1, root=world.rank)


def gather_for_a_save(world: World) -> Any:
    return world.all_gather({"x": 1}) if world.rank else ds.save({"x": 1}, "nowhere", world=world)


JOBS = [other_shape, other_dtype, other_op, other_call, other_root, gather_for_a_save]


@pytest.mark.parametrize("job", JOBS)
def test_ranks_that_disagree_are_named_and_nothing_changes(job: Callable[[World], Any]) -> None:
    errors = in_ranks(2, job, timeout=5)
    assert {type(each) for each in errors} == {ds.RanksDisagreeError}
    assert "rank 0 on host0" in str(errors[0])
    assert "rank 1 on host0" in str(errors[0])


def test_a_save_in_a_thread_of_parallel_is_refused_by_its_name() -> None:
    def save(world: World) -> Any:
        return ds.parallel([lambda _: ds.save({"x": 1}, "nowhere", world=world)] * 2, [ds.ones(1), ds.ones(1)])

    for error in in_ranks(2, save, timeout=5):
        assert "ds.save was called in a thread of ds.parallel" in str(error)


def test_many_tensors_are_compared_too() -> None:
    def job(world: World) -> Any:
        return world.all_reduce_([{f"x{i}": ds.ones(2 + (i == 7 and world.rank)) for i in range(9)}])

    assert {type(each) for each in in_ranks(2, job, timeout=5)} == {ds.RanksDisagreeError}


def test_a_late_rank_is_named_and_nothing_changes() -> None:
    def job(world: World) -> Any:
        x = ds.ones(2)
        if world.rank == 2:
            return None
        world._engine().patience = 0.3
        with pytest.raises(ds.RankLateError, match="rank 2 on host1 has not made this call") as caught:
            world.all_reduce_([x])
        assert caught.value.late == (2,)
        assert isinstance(caught.value, TimeoutError)
        return x.tolist()

    assert in_ranks(3, job) == [[1, 1], [1, 1], None]


def test_one_process_is_a_world_of_its_own() -> None:
    world = ds.world()
    assert world is ds.world()
    assert (world.rank, world.size, world.local_rank, world.attempt) == (0, 1, 0, 0)
    assert world.hosts == (world.host,)
    tree = {"x": ds.ones(2)}
    assert world.broadcast(tree) is tree
    assert world.all_gather(tree) == [tree]
    assert world.all_reduce_([tree]) == [tree]
    world.barrier()
    with pytest.raises(ds.ArgumentError, match="found no rank 1"):
        world.broadcast(tree, root=1)
    with pytest.raises(ds.ArgumentError):
        world.all_reduce_([])


def test_ranks_connect_before_their_first_step() -> None:
    """On a busy machine that takes longer than a collective may wait."""
    seen = []

    def peers(place: Place) -> Any:
        seen.append(world.steps.doing)
        msg = "there is no Ray"
        raise ds.WorldError(msg)

    world = World(Place(rank=0, size=2, hosts=("a", "b")), peers)
    calls: list[Callable[[], Any]] = [world.barrier, lambda: world.broadcast(1), lambda: world.all_gather(1)]
    calls.append(lambda: world.all_reduce_([np.ones(2)]))
    for call in calls:
        with pytest.raises(ds.WorldError, match="there is no Ray"):
            call()
    assert seen == [None] * 4
    assert world.steps.number == 0
