"""Tests of sums without a comparison before them: the ranks go on as they have done in the steps before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import pytest
from swapping_engine import Table
from swapping_engine import numpy_alone as numpy_alone
from swapping_engine import table as table

import devshim as ds
from devshim.testing.thread_ranks import on_ranks
from devshim.world import trees
from devshim.world.world import World

RANKS = 3
LEARNED = 4
"""This many equal calls are compared; the next ones are expected."""


def in_ranks(job: Callable[[World], Any]) -> list[Any]:
    hosts = tuple(f"host{rank}" for rank in range(RANKS))
    return on_ranks(RANKS, job, timeout=20, hosts=hosts, engine_address="127.0.0.1:1")


def total(world: World, size: int = 2, op: Any = "sum", dtype: str = "float32") -> list[float]:
    """Return the sum of arrays of the ranks' numbers."""
    found: list[float] = world.all_reduce_([np.full(size, world.rank + 1, dtype)], op)[0].tolist()
    return found


def test_a_call_that_is_repeated_is_not_compared_any_more(table: Table) -> None:
    assert in_ranks(lambda world: [total(world) for _ in range(9)]) == [[[6, 6]] * 9] * RANKS
    assert (table.comparisons, table.sums) == (LEARNED, 9)


def test_calls_that_take_turns_are_expected(table: Table) -> None:
    def job(world: World) -> Any:
        return [(total(world, op="mean"), total(world, 1)) for _ in range(9)]

    assert in_ranks(job) == [[([2, 2], [6])] * 9] * RANKS
    assert table.sums == 18
    assert table.comparisons == 2 * LEARNED - 1  # the first call follows nothing


OTHERS: dict[str, Callable[[World], Any]] = {
    "shape": lambda world: total(world, 3),
    "dtype": lambda world: total(world, dtype="float64"),
    "operation": lambda world: total(world, op="max"),
    "mean": lambda world: total(world, op="mean"),
    "integers": lambda world: total(world, dtype="int64"),
    "large": lambda world: total(world, 2**20),
    "two dtypes": lambda world: world.all_reduce_([{"a": np.ones(2, "float32"), "b": np.ones(2, "float64")}]),
    "no engine": lambda world: total(world, dtype="float16"),
    "step": lambda world: setattr(world.steps, "number", 41) or total(world),
}


@pytest.mark.parametrize("bad", range(RANKS))
@pytest.mark.parametrize("other", OTHERS)
def test_a_rank_that_does_something_else_is_named(table: Table, other: str, bad: int) -> None:
    def job(world: World) -> Any:
        for _ in range(LEARNED + 2):
            total(world)
        mine = np.full(2, world.rank, "float32")
        try:
            OTHERS[other](world) if world.rank == bad else world.all_reduce_([mine])
        except ds.RanksDisagreeError as error:
            return error.problem, mine.tolist()
        return "none", []

    for rank, (problem, mine) in enumerate(in_ranks(job)):
        assert "the ranks do not agree on step" in problem
        assert f"rank {bad} on host{bad}: " in problem
        assert mine == [rank] * 2  # nothing has changed
    assert table.comparisons == LEARNED + 2  # and the texts of all


@pytest.mark.parametrize("other", [name for name in OTHERS if name != "step"])
def test_all_ranks_may_do_something_else(table: Table, other: str) -> None:
    def job(world: World) -> Any:
        before = [total(world) for _ in range(LEARNED + 2)]
        OTHERS[other](world)
        return before + [total(world) for _ in range(LEARNED + 2)]

    assert in_ranks(job) == [[[6, 6]] * 2 * (LEARNED + 2)] * RANKS


OTHER_CALLS: dict[str, Callable[[World], Any]] = {
    "barrier": lambda world: world.barrier(),
    "broadcast": lambda world: world.broadcast({"x": world.rank}, root=1)["x"],
    "all_gather": lambda world: world.all_gather(world.rank),
}


@pytest.mark.parametrize("call", OTHER_CALLS)
def test_other_calls_between_sums_are_right(table: Table, call: str) -> None:
    def job(world: World) -> Any:
        for number in range(20):
            assert total(world) == [6, 6]
            if number % 6 == 5:
                found = OTHER_CALLS[call](world)
        return found

    assert in_ranks(job) == [{"barrier": None, "broadcast": 1, "all_gather": [0, 1, 2]}[call]] * RANKS


def test_a_rank_may_change_its_number_of_devices(table: Table) -> None:
    def job(world: World) -> Any:
        means = []
        for number in range(LEARNED + 6):
            count = 2 if number > LEARNED + 2 and world.rank == 1 else 1
            means.append(world.all_reduce_([np.full(2, 6.0, "float32") for _ in range(count)], "mean")[0].tolist())
        return means

    assert in_ranks(job) == [[[6, 6]] * (LEARNED + 6)] * RANKS


def test_results_have_the_same_bits_before_and_after(table: Table) -> None:
    """A job that is resumed compares its first steps again, and must compute the same."""
    data = np.random.default_rng(1).normal(size=(RANKS, 1001)).astype("float32")

    def job(world: World) -> set[bytes]:
        return {world.all_reduce_([data[world.rank].copy()])[0].tobytes() for _ in range(LEARNED + 3)}

    found = in_ranks(job)
    assert len(set.union(*found)) == 1


def test_an_error_of_the_engine_in_an_expected_sum_changes_nothing(table: Table) -> None:
    def job(world: World) -> Any:
        for _ in range(LEARNED + 1):
            total(world)
        world.barrier()
        table.broken = "Connection closed by peer"
        mine = np.full(2, world.rank, "float32")
        with pytest.raises(ds.RankFailedError):
            world.all_reduce_([mine])
        return mine.tolist()

    assert in_ranks(job) == [[rank] * 2 for rank in range(RANKS)]


@pytest.mark.parametrize("at", range(1, LEARNED + 4))
@pytest.mark.parametrize("size", [2, 5])
def test_a_rank_that_cannot_read_its_tensors_is_named(table: Table, at: int, size: int) -> None:
    """It catches the error, and its next sum must not be taken for the one that the others are in."""

    def job(world: World) -> list[Any]:
        results: list[Any] = []
        for call in range(1, LEARNED + 6):
            fails = world.rank == 1 and call == at
            with broken(world) if fails else nullcontext():
                try:
                    results.append(total(world, size if world.rank == 1 and call == at + 1 else 2))
                except MemoryError:
                    results.append("no memory")
                except ds.WorldError as error:
                    return [*results, type(error)]
        return results

    right = [[6.0, 6.0]] * (at - 1)
    end = ds.RanksDisagreeError
    assert in_ranks(job) == [[*right, end], [*right, "no memory", end], [*right, end]]


@contextmanager
def broken(world: World) -> Iterator[None]:
    """Let a rank fail when it reads the tensors of a sum."""
    buckets, read = world._sums._buckets, world._sums._buckets.with_tail

    def with_tail(sources: Any, *rest: Any) -> Any:
        if sources:
            raise MemoryError
        return read(sources, *rest)

    buckets.with_tail = with_tail  # type: ignore[method-assign]
    try:
        yield
    finally:
        del buckets.with_tail


def test_a_ledger_has_the_exchange_and_not_how_it_is_made(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "can_share", lambda *args: False)  # as where tensors cannot change

    def job(world: World) -> list[tuple[int, int]]:
        results = []
        for _ in range(LEARNED + 2):
            with ds.transfers() as log:
                total(world)
            results.append((log.count, log.total_bytes))
        return results

    found = in_ranks(job)
    assert found == [found[0][:1] * (LEARNED + 2)] * RANKS
    assert found[0][0][0] == 1
