"""Tests of sums by an engine: the comparison before each sum, dtypes that it lacks, and its errors.

The ranks are threads, and the engine is made up (`swapping_engine`).
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from swapping_engine import Engine, Table
from swapping_engine import numpy_alone as numpy_alone
from swapping_engine import table as table

import devshim as ds
from devshim.contract.ranks import Place
from devshim.registry import registry
from devshim.testing.thread_ranks import on_ranks
from devshim.world.native import Native
from devshim.world.steps import Steps
from devshim.world.world import World

RANKS = 2


def in_ranks(job: Callable[[World], Any]) -> list[Any]:
    return on_ranks(RANKS, job, timeout=20, engine_address="127.0.0.1:1")


def test_a_sum_uses_the_engine(table: Table) -> None:
    def job(world: World) -> Any:
        x, y = np.full((2, 3), world.rank + 1, "float32"), np.full(4, world.rank, "float32")
        n = np.full((), 2**40 + world.rank)
        tree = {"x": x, "y": y, "n": n}
        world.all_reduce_([tree])
        return tree["x"] is x, x.tolist(), y.tolist(), int(n), world.describe()

    for is_same, x, y, n, text in in_ranks(job):
        assert is_same
        assert (x, y, n) == ([[3, 3, 3]] * 2, [1] * 4, 2**41 + 1)
        assert "sums: swap of numpy; other dtypes: Ray, in the order of the ranks" in text
    assert table.sums == 2  # one for each dtype


class Parted(Engine):
    """An engine that adds in the tensors' own memory, two int64 at a time, and may fail at the second part."""

    in_place: ClassVar[bool] = True
    part_bytes: ClassVar[int] = 16
    fails: ClassVar[bool] = False

    def reduce_parts(self, parts: Iterable[Any], op: Any) -> Iterator[Any]:
        for number, part in enumerate(parts):
            yield self.reduce_flat(part, op)
            if self.fails and number == 1:
                msg = "Connection closed by peer"
                raise RuntimeError(msg)


@pytest.mark.parametrize("fails", [False, True])
def test_a_sum_in_the_memory_of_a_tensor_is_undone_by_an_error(
    table: Table, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    monkeypatch.setattr(registry.load("numpy"), "start_ranks", lambda place, insists: Parted(place, table))
    monkeypatch.setattr(Parted, "fails", fails)

    def job(world: World) -> Any:
        x = np.arange(5) + world.rank
        view = np.full((4, 2), world.rank)[:, 0]  # whose memory is not one piece, so a copy is added
        try:
            world.all_reduce_([x])
            world.all_reduce_([view])
        except ds.RankFailedError:
            return x.tolist()
        return x.tolist(), view.tolist()

    if fails:
        assert in_ranks(job) == [[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]]
    else:
        assert in_ranks(job) == [([1, 3, 5, 7, 9], [1, 1, 1, 1])] * 2


@pytest.mark.parametrize(("op", "expected"), [("sum", 9), ("mean", 3), ("max", 6), ("min", 1)])
def test_ranks_may_have_different_numbers_of_devices(table: Table, op: Any, expected: float) -> None:
    def job(world: World) -> Any:
        mine = [[1.0], [2.0, 6.0]][world.rank]
        return [x.tolist() for x in world.all_reduce_([np.full(2, each, "float32") for each in mine], op)]

    assert in_ranks(job) == [[[expected] * 2], [[expected] * 2] * 2]
    assert table.sums == 1


def test_a_dtype_that_the_engine_lacks_goes_the_portable_way(table: Table) -> None:
    def job(world: World) -> Any:
        tree = {"a": np.full(2, world.rank, "float16"), "b": np.full(2, world.rank, "float32")}
        world.all_reduce_([tree])
        return tree["a"].tolist(), tree["b"].tolist()

    assert in_ranks(job) == [([1, 1], [1, 1])] * 2
    assert table.sums == 1


def test_the_environment_may_insist_on_the_engine(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEVSHIM_ENGINE", "native")
    for error in in_ranks(lambda world: world.all_reduce_([np.ones(2, "float16")])):
        assert isinstance(error, ds.UnsupportedError)
        assert "swap did not pass the tests for this call: all_reduce, sum of float16 (2,)" in str(error)
    monkeypatch.setattr(registry.load("numpy"), "start_ranks", lambda place, insists: None)
    for error in in_ranks(lambda world: world.all_reduce_([np.ones(2)])):
        assert isinstance(error, ds.UnsupportedError)
        assert "numpy has no native collectives" in str(error)


def test_the_environment_may_refuse_it(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEVSHIM_ENGINE", "portable")
    assert [x[0].tolist() for x in in_ranks(lambda world: world.all_reduce_([np.ones(2, "float32")]))] == [[2, 2]] * 2
    assert table.sums == 0
    monkeypatch.setenv("DEVSHIM_ENGINE", "fast")
    for error in in_ranks(lambda world: world.all_reduce_([np.ones(2, "float32")])):
        assert isinstance(error, ds.ArgumentError)
        assert "DEVSHIM_ENGINE is 'fast'" in str(error)


class Losing(Parted):
    """An engine that loses NaN as gloo does."""

    part_bytes: ClassVar[int] = 8
    add: ClassVar[Mapping[str, Callable[..., Any]]] = {
        **Engine.add,
        "max": lambda a, b: np.where(a < b, b, a),
        "min": lambda a, b: np.where(b < a, b, a),
    }


NAN = float("nan")


@pytest.mark.parametrize("op", ["max", "min"])
@pytest.mark.parametrize(
    ("values", "messages"),
    [
        (([1, NAN, 2, 0, 0], [NAN, 1, 3, 0, 0]), 6),
        (([1, 1, 1, 1, 1], [1, 1, 1, 1, NAN]), 6),
        (([1, 2, 3, 4, 5], [5, 4, 3, 2, 1]), 3),
        (([1, -np.inf, np.inf, 0, -0.0], [np.inf, 1, 1, 0, 0]), 3),
    ],
)
def test_nan_of_a_rank_is_kept_by_an_engine_that_loses_it(
    table: Table, monkeypatch: pytest.MonkeyPatch, values: tuple[list[float], ...], messages: int, op: Any
) -> None:
    monkeypatch.setattr(registry.load("numpy"), "start_ranks", lambda place, insists: Losing(place, table))
    expected = {"max": np.maximum, "min": np.minimum}[op](*np.array(values, "float32"))

    def job(world: World) -> Any:
        x = np.array(values[world.rank], "float32")
        world.all_reduce_([x], op)
        tree = {"n": np.array([world.rank]), "x": np.array(values[world.rank][:3], "float32"), "y": x[:2].copy()}
        world.all_reduce_([tree], op)
        return x, tree

    for x, tree in in_ranks(job):
        np.testing.assert_array_equal(x, expected)
        np.testing.assert_array_equal(tree["x"], expected[:3])
        np.testing.assert_array_equal(tree["y"], expected[:2])
        assert tree["n"] == (op == "max")
    in_tree = messages if np.isnan(expected[:3]).any() else 3
    assert table.sums == messages + in_tree + 1


def test_an_engine_that_keeps_nan_needs_one_message(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "keeps_nan", True)
    found = in_ranks(lambda world: world.all_reduce_([np.array([NAN, 1], "float32")], "max")[0].tolist())
    assert str(found) == str([[NAN, 1.0]] * 2)
    assert table.sums == 1


UNLIKE = {
    "shapes": ([np.ones(2, "float32")], [np.ones(3, "float32")], "float32 (3,)"),
    "dtypes": ([np.ones(2, "float32")], [np.ones(2, "int64")], "int64 (2,)"),
    "way": ([np.ones(2, "float32")], [np.ones(2, "float16")], "float16 (2,)"),
    "trees": ([{"a": np.ones(2, "float32")}], [{"a": np.ones(2, "float32"), "b": np.ones(1, "float16")}], "float16"),
    "many": (
        [[np.ones(2, "float32") for _ in range(9)]],
        [[*(np.ones(2, "float32") for _ in range(8)), np.ones(3, "float32")]],
        "and 5 more (",
    ),
    "long": (
        [[np.ones((1,) * 60, "float32") for _ in range(5)]],
        [[*(np.ones((1,) * 60, "float32") for _ in range(4)), np.ones(3, "float32")]],
        "and 1 more (",
    ),
}


@pytest.mark.parametrize("case", UNLIKE)
def test_ranks_compare_before_the_engine_sums(case: str, table: Table) -> None:
    *trees, said = UNLIKE[case]
    before = [str(tree) for tree in trees]
    errors = in_ranks(lambda world: world.all_reduce_(list(trees[world.rank])))
    for rank, error in enumerate(errors):
        assert isinstance(error, ds.RanksDisagreeError)
        assert f"rank {1 - rank} on host{1 - rank}: all_reduce, sum of" in error.problem
        first, _, second = error.problem.partition("; ")
        assert said in second  # in the order of the ranks, on both
        assert first.rpartition(": ")[2] != second.rpartition(": ")[2]
    assert table.sums == 0
    assert [str(tree) for tree in trees] == before


OTHER_CALLS: dict[str, Callable[[World], Any]] = {
    "barrier": lambda world: world.barrier(),
    "broadcast from rank 0": lambda world: world.broadcast(3),
    "all_gather": lambda world: world.all_gather(3),
}


@pytest.mark.parametrize("before", [0, 1, 6])  # the first call starts the engine; the seventh is expected
@pytest.mark.parametrize("other", [0, 1])
@pytest.mark.parametrize("call", OTHER_CALLS)
def test_a_sum_and_another_call_are_compared_at_once(call: str, other: int, before: int, table: Table) -> None:
    def job(world: World) -> Any:
        for _ in range(before):
            world.all_reduce_([np.ones(2, "float32")])
        mine = np.ones(2, "float32")
        with pytest.raises(ds.RanksDisagreeError) as error:
            OTHER_CALLS[call](world) if world.rank == other else world.all_reduce_([mine])
        assert world.all_gather(world.rank) == [0, 1]  # the job can go on
        assert world.all_reduce_([np.ones(2, "float32")])[0].tolist() == [2, 2]
        return error.value.problem, mine.tolist()

    calls = [
        f"rank {rank} on host{rank}: {call if rank == other else 'all_reduce, sum of float32 (2,)'}" for rank in (0, 1)
    ]
    problem = f"the ranks do not agree on step {before + 1}: {calls[0]}; {calls[1]}"
    assert in_ranks(job) == [(problem, [1, 1])] * 2


def test_a_framework_without_an_engine_leaves_it_to_another(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = registry.load("numpy")
    native = Native(Place(size=2, engine_address="127.0.0.1:1"), Steps())
    other = SimpleNamespace(name="other", ranks_on_request="", start_ranks=lambda place, insists: None)
    assert not native.start(other)  # type: ignore[arg-type]
    assert native.start_any(other)  # type: ignore[arg-type]  # that of `ds.use`
    assert native.backend is backend


def test_a_rank_that_is_a_step_ahead_is_named(table: Table) -> None:
    def job(world: World) -> Any:
        world.steps.number += world.rank
        return world.all_reduce_([np.ones(2, "float32")])

    first, second = in_ranks(job)
    assert "step 1: rank 0 on host0: all_reduce, sum of float32 (2,); rank 1 on host1: step 2, all_reduce" in str(first)
    assert isinstance(second, ds.RanksDisagreeError)


@pytest.mark.parametrize("address", ["127.0.0.1:1", ""])
def test_the_first_sum_is_step_1_with_and_without_an_engine(table: Table, address: str) -> None:
    """The start of an engine is not counted, because some frameworks have none, and errors name the same step."""

    def job(world: World) -> Any:
        world.all_reduce_([np.ones(2 + world.rank, "float32")])

    errors = on_ranks(2, job, timeout=20, engine_address=address)
    assert [type(error) for error in errors] == [ds.RanksDisagreeError] * 2
    assert {str(error).partition(": rank 0 on host0")[0] for error in errors} == {"the ranks do not agree on step 1"}


def test_an_engine_that_does_not_start_names_the_step_of_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    # The error is raised in a library, like an engine's error.
    monkeypatch.setattr(registry.load("numpy"), "start_ranks", lambda place, insists: json.loads(""))

    def job(world: World) -> tuple[str, int]:
        world.steps.number = 1
        with pytest.raises(ds.RankFailedError) as error:
            world.all_reduce_([np.ones(2, "float32")])
        return error.value.problem, world.steps.number

    for rank, (problem, number) in enumerate(in_ranks(job)):
        expected = f"step 2 (start of the ranks of numpy) failed on rank {rank} on host{rank}"
        assert problem.startswith(expected)
        assert number == 1


def test_an_error_of_the_engine_changes_nothing(table: Table) -> None:
    table.broken = "Connection closed by peer [127.0.0.1]:2\nmore"
    arrays = [np.ones(2, "float32") for _ in range(2)]
    for rank, error in enumerate(in_ranks(lambda world: world.all_reduce_([arrays[world.rank]]))):
        assert isinstance(error, ds.RankFailedError)
        assert (error.rank, error.host) == (1 - rank, f"host{1 - rank}")
        assert f"failed on rank {rank} on host{rank}: Connection closed by peer [127.0.0.1]:2" in error.problem
        assert "more" not in error.problem
        assert isinstance(error.__cause__, RuntimeError)
    assert [x.tolist() for x in arrays] == [[1, 1]] * 2


def test_a_late_rank_is_a_late_error(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table.broken = "Timed out waiting 1000ms"
    monkeypatch.setattr(sys.modules[Native.__module__], "collective_timeout", lambda place: 0.0)
    for rank, error in enumerate(in_ranks(lambda world: world.all_reduce_([np.ones(2, "float32")]))):
        assert isinstance(error, ds.RankLateError)
        assert (error.waiting, error.late) == ((rank,), (1 - rank,))


@pytest.mark.parametrize(("broken", "patience"), [("Timed out waiting 1000ms", 0.0), ("Connection closed", 60.0)])
def test_ranks_that_are_connected_know_who_is_late(
    table: Table, monkeypatch: pytest.MonkeyPatch, broken: str, patience: float
) -> None:
    """With three ranks, an engine does not say who; a rank that waits for longer than it may asks the others."""
    monkeypatch.setattr(table, "barrier", threading.Barrier(3, timeout=20))
    monkeypatch.setattr(sys.modules[Native.__module__], "collective_timeout", lambda place: patience)
    table.items.append(None)
    arrived = threading.Barrier(3, timeout=20)

    def job(world: World) -> Any:
        world.all_gather(1)
        arrived.wait()
        table.broken = broken
        if world.rank == 1:
            return arrived.wait()
        try:
            world.barrier()
        except ds.WorldError as error:
            return error
        finally:
            arrived.wait()

    first, _, third = on_ranks(3, job, timeout=20, engine_address="127.0.0.1:1")
    for rank, error in ((0, first), (2, third)):
        if patience:
            assert (type(error), error.rank) == (ds.RankFailedError, -1)
            continue
        assert isinstance(error, ds.RankLateError)
        assert 1 in error.late
        assert rank not in error.late


def test_a_rank_knows_whether_it_has_an_engine(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def job(world: World) -> str:
        monkeypatch.setattr(registry.load("numpy"), "start_ranks", lambda place, insists: start(world))
        world.barrier()
        return world.steps.engine

    def start(world: World) -> None:
        seen.append(world.steps.engine)

    assert on_ranks(1, lambda world: world.steps.engine) == [""]
    in_ranks(lambda world: world.all_reduce_([np.ones(2, "float32")]))
    assert in_ranks(lambda world: (world.barrier(), world.steps.engine)[1]) == ["runs"] * 2
    assert in_ranks(job) == ["none"] * 2
    assert set(seen) == {"starts"}


def test_no_engine_starts_without_an_address(table: Table) -> None:
    found = on_ranks(2, lambda world: world.all_reduce_([np.ones(2, "float32")])[0].tolist())
    assert found == [[2, 2]] * 2
    assert table.sums == 0


def test_describe_says_why_an_engine_is_not_used(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def job(world: World) -> tuple[str, str]:
        before = world.describe().splitlines()[-1]
        world.all_reduce_([np.ones(2, "float32")])
        return before, world.describe().splitlines()[-1]

    ray = "sums: Ray, in the order of the ranks, because"
    begun, used = (
        "sums: not started yet: the first sum starts an engine",
        "sums: swap of numpy; other dtypes: " + ray[6:-9],
    )
    assert in_ranks(job) == [(begun, used)] * 2
    no_address = on_ranks(2, job, timeout=20)
    assert [after for _, after in no_address] == [f"{ray} the launcher names no address where rank 0 may listen"] * 2
    backend = registry.load("numpy")
    monkeypatch.setattr(backend, "ranks_on_request", "it listens everywhere", raising=False)
    assert in_ranks(job)[0][1] == f"{ray} it listens everywhere; DEVSHIM_ENGINE=native uses it"
    monkeypatch.setattr(backend, "ranks_on_request", "")
    error = ds.AlreadyStartedError("rank 1 has arrays", "call ds.world() earlier")

    def late(place: Place, insists: bool) -> None:
        raise error

    monkeypatch.setattr(backend, "start_ranks", late)
    assert in_ranks(job)[0][1] == f"{ray} rank 1 has arrays"
    monkeypatch.setattr(backend, "start_ranks", lambda place, insists: None)
    assert in_ranks(job)[0][1] == f"{ray} numpy has no native collectives that devshim uses"
    monkeypatch.setenv("DEVSHIM_ENGINE", "portable")
    assert in_ranks(job)[0][1] == f"{ray} DEVSHIM_ENGINE is portable"
    monkeypatch.setenv("DEVSHIM_ENGINE", "native")
    monkeypatch.setattr(backend, "start_ranks", late)
    assert [type(each) for each in in_ranks(job)] == [ds.AlreadyStartedError] * 2


def test_an_engine_does_not_keep_the_signal_that_ends_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX's runtime catches SIGTERM, as a notice of preemption, and goes on."""

    def start(place: Place, insists: bool) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    backend = registry.load("numpy")
    monkeypatch.setattr(backend, "start_ranks", start)
    monkeypatch.setenv("DEVSHIM_ENGINE", "")
    before = signal.getsignal(signal.SIGTERM)
    try:
        Native(Place(size=2, engine_address="127.0.0.1:1"), Steps()).start(backend)
        assert signal.getsignal(signal.SIGTERM) == before
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_long_error_of_an_engine_is_cut_between_words(table: Table) -> None:
    table.broken = "Connection closed by peer " + "word " * 100
    for error in in_ranks(lambda world: world.all_reduce_([np.ones(2, "float32")])):
        assert type(error) is ds.RankFailedError
        assert error.problem.endswith("word word ...")


def test_an_error_of_a_signal_handler_stays_what_it_is(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program interrupts the engine; its error is not one of the engine."""
    names: dict[str, Any] = {"__name__": "program"}
    exec("def handler(*_):\n    raise ValueError('a bad batch')", names)
    monkeypatch.setattr(Engine, "max_ints", names["handler"])
    found = in_ranks(lambda world: world.all_reduce_([np.ones(2, "float32")]))
    assert [(type(error), str(error)) for error in found] == [(ValueError, "a bad batch")] * 2
