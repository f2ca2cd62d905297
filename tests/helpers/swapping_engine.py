"""An engine for ranks that are threads: it adds arrays that the threads swap.

A sum of unlike arrays fails the test, because gloo would end the process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, ClassVar

import numpy as np
import pytest

import devshim as ds
from devshim.contract.rank_engines import RankEngine
from devshim.contract.ranks import Place
from devshim.registry import registry

__all__ = ["Engine", "Table", "numpy_alone", "table"]

ADD = {"sum": np.add, "max": np.maximum, "min": np.minimum}


class Table:
    """State that the engines of all ranks share: the swapped arrays, and counts of sums and comparisons."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size, timeout=20)
        self.items: list[Any] = [None] * size
        self.sums = self.comparisons = 0
        self.broken = ""

    def swap(self, rank: int, x: Any) -> list[Any]:
        self.items[rank] = x
        self.barrier.wait()
        found = list(self.items)
        self.barrier.wait()
        return found


class Engine(RankEngine):
    name: ClassVar[str] = "swap"
    right: ClassVar[Mapping[str, Sequence[str]]] = dict.fromkeys(("float32", "int64"), tuple(ADD))
    add: ClassVar[Mapping[str, Callable[..., Any]]] = ADD

    def __init__(self, place: Place, table: Table) -> None:
        self._rank, self._table = place.rank, table

    def reduce_flat(self, x: Any, op: str) -> Any:
        self._raise_if_broken()
        self._table.sums += self._rank == 0
        parts = self._table.swap(self._rank, x.copy())
        assert len({(part.dtype, part.shape) for part in parts}) == 1
        x[...] = reduce(self.add[op], parts)  # in place, as gloo does
        return x

    def max_ints(self, values: Sequence[int]) -> list[int]:
        self._raise_if_broken()
        self._table.comparisons += self._rank == 0
        parts = self._table.swap(self._rank, list(values))
        assert len({len(part) for part in parts}) == 1
        assert all(-(2**31) <= value < 2**31 for value in values)
        return [max(each) for each in zip(*parts, strict=True)]

    def _raise_if_broken(self) -> None:
        if self._table.broken:
            raise RuntimeError(self._table.broken)

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def numpy_alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run each test on NumPy, without a choice of the engine by the environment."""
    monkeypatch.delenv("DEVSHIM_ENGINE", raising=False)
    with ds.using("numpy"):
        yield


@pytest.fixture
def table(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Table:
    """Give NumPy an engine for the number of ranks that the test's module names."""
    found = Table(request.module.RANKS)
    monkeypatch.setattr(registry.load("numpy"), "start_ranks", lambda place, insists: Engine(place, found))
    return found
