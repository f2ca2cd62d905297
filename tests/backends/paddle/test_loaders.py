"""Tests of `devshim.prefetch` over Paddle's loader with worker processes."""

from __future__ import annotations

import gc
import multiprocessing
import threading
import time

import numpy as np
import pytest

import devshim as ds

paddle = ds.framework("paddle")

VALUES = np.arange(40, dtype=np.float32).reshape(10, 4)


class Rows(paddle.io.Dataset):
    """The rows of an array; one of them may fail."""

    def __init__(self, bad=None):
        self.bad = bad

    def __getitem__(self, index):
        if index == self.bad:
            message = "the disk is gone"
            raise OSError(message)
        return VALUES[index]

    def __len__(self):
        return len(VALUES)


@pytest.fixture(autouse=True)
def _nothing_is_left():
    ds.use("paddle")
    before = threading.active_count()
    yield
    gc.collect()
    deadline = time.monotonic() + 20
    while (multiprocessing.active_children() or threading.active_count() > before) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not multiprocessing.active_children()
    assert threading.active_count() <= before


def loader(bad=None, num_workers=2, **options):
    return paddle.io.DataLoader(Rows(bad), batch_size=2, num_workers=num_workers, places=[paddle.CPUPlace()], **options)


def test_batches_of_workers_arrive_in_order():
    with ds.simulate(gpus=1):
        batches = list(ds.prefetch(loader(), "gpu"))
        assert {ds.device_of(batch) for batch in batches} == {ds.gpu()}
        assert np.array_equal(np.concatenate([ds.to_numpy(batch) for batch in batches]), VALUES)


@pytest.mark.parametrize("shared", [True, False])
def test_a_loop_over_workers_can_end_early(shared):
    """Paddle itself leaves the workers and a thread in a plain loop."""
    for batch in ds.prefetch(loader(use_shared_memory=shared), "cpu"):
        assert np.array_equal(ds.to_numpy(batch), VALUES[:2])
        break


def test_a_loop_without_workers_can_end_early():
    """Such a loader has a thread, which Paddle itself leaves in a plain loop."""
    for batch in ds.prefetch(loader(num_workers=0), "cpu"):
        assert np.array_equal(ds.to_numpy(batch), VALUES[:2])
        break


def test_an_iterator_that_is_dropped_ends_its_workers():
    batches = iter(ds.prefetch(loader(), "cpu"))
    next(batches)
    del batches


@pytest.mark.filterwarnings("ignore:Exception in thread:pytest.PytestUnhandledThreadExceptionWarning")
def test_an_error_in_a_worker_ends_all_workers():
    """Paddle raises an error of its own, and its thread ends with the worker's."""
    with pytest.raises(Exception, match=r".") as caught:
        list(ds.prefetch(loader(bad=6), "cpu"))
    assert not isinstance(caught.value, AssertionError)


def test_persistent_workers_stay_with_the_loader():
    persistent = loader(persistent_workers=True)
    for _ in range(2):
        batches = [ds.to_numpy(batch) for batch in ds.prefetch(persistent, "cpu")]
        assert np.array_equal(np.concatenate(batches), VALUES)
    persistent._iterator._try_shutdown_all()
