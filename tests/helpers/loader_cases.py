"""Tests of `devshim.prefetch` over a framework's loader with worker processes, the same for each such framework."""

from __future__ import annotations

import gc
import multiprocessing
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import devshim as ds

VALUES = np.arange(40, dtype=np.float32).reshape(10, 4)


class Rows:
    """The rows of an array; one of them may fail."""

    def __init__(self, bad: int | None = None) -> None:
        self.bad = bad

    def __getitem__(self, index: int) -> Any:
        if index == self.bad:
            message = "the disk is gone"
            raise OSError(message)
        return VALUES[index]

    def __len__(self) -> int:
        return len(VALUES)


class LoaderCases:
    """The tests; a subclass makes the framework's loader of batches of two rows."""

    def loader(self, bad: int | None = None) -> Any:
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def _workers_have_ended(self, current: str) -> Iterator[None]:
        """Check after a test that no worker process and no thread of it is left."""
        before = threading.active_count()
        yield
        gc.collect()
        deadline = time.monotonic() + 20
        while (multiprocessing.active_children() or threading.active_count() > before) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not multiprocessing.active_children()
        assert threading.active_count() <= before

    def test_batches_of_workers_arrive_in_order(self) -> None:
        with ds.simulate(gpus=1):
            batches = list(ds.prefetch(self.loader(), "gpu"))
            assert {ds.device_of(batch) for batch in batches} == {ds.gpu()}
            assert np.array_equal(np.concatenate([ds.to_numpy(batch) for batch in batches]), VALUES)

    def test_a_loop_over_workers_can_end_early(self) -> None:
        for batch in ds.prefetch(self.loader(), "cpu"):
            assert np.array_equal(ds.to_numpy(batch), VALUES[:2])
            break

    def test_an_iterator_that_is_dropped_ends_its_workers(self) -> None:
        batches = iter(ds.prefetch(self.loader(), "cpu"))
        next(batches)
        del batches

    @pytest.mark.parametrize("failure", [KeyError, KeyboardInterrupt])
    def test_an_error_in_the_loop_ends_the_workers(self, failure: type[BaseException]) -> None:
        with pytest.raises(failure):  # noqa: PT012, the loop is what fails
            for _ in ds.prefetch(self.loader(), "cpu"):
                raise failure

    def test_an_iterator_of_the_program_goes_on_after_the_loop(self) -> None:
        batches = iter(self.loader())
        for first in ds.prefetch(batches, "cpu", depth=1):
            assert np.array_equal(ds.to_numpy(first), VALUES[:2])
            break
        seen = np.concatenate([ds.to_numpy(batch) for batch in batches])
        assert np.array_equal(seen, VALUES[-len(seen) :])
        assert len(seen) >= 4, "the thread took at most two batches ahead"


class OrderedLoaderCases(LoaderCases):
    """The tests for a loader that raises a worker's error itself, at its place among the batches."""

    def test_an_error_in_a_worker_comes_in_order_and_once(self) -> None:
        batches = iter(ds.prefetch(self.loader(bad=6), "cpu"))
        for i in range(3):
            assert np.array_equal(ds.to_numpy(next(batches)), VALUES[2 * i : 2 * i + 2])
        with pytest.raises(OSError, match="the disk is gone") as error:
            next(batches)
        assert not multiprocessing.active_children(), "they end with the loop, although the error still refers to them"
        del error
        with pytest.raises(StopIteration):
            next(batches)
