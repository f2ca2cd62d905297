"""Tests of `devshim.prefetch` over Gluon's loader with worker processes."""

from __future__ import annotations

import gc
import multiprocessing
import threading
import time

import numpy as np
import pytest

import devshim as ds

# MXNet 2.0 causes these warnings itself, by calling functions that it has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:.*(as_in_context|Context class|ndarray.ctx):DeprecationWarning")

data = ds.framework("mxnet").gluon.data

VALUES = np.arange(40, dtype=np.float32).reshape(10, 4)


class Rows(data.Dataset):
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
def _nothing_is_left(mxnet):
    before = threading.active_count()
    yield
    gc.collect()
    deadline = time.monotonic() + 20
    while (multiprocessing.active_children() or threading.active_count() > before) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not multiprocessing.active_children()
    assert threading.active_count() <= before


def loader(bad=None):
    return data.DataLoader(Rows(bad), 2, num_workers=2)


def test_batches_of_workers_arrive_in_order():
    with ds.simulate(gpus=1):
        batches = list(ds.prefetch(loader(), "gpu"))
        assert {ds.device_of(batch) for batch in batches} == {ds.gpu()}
        assert np.array_equal(np.concatenate([ds.to_numpy(batch) for batch in batches]), VALUES)


def test_a_loop_over_workers_can_end_early():
    for batch in ds.prefetch(loader(), "cpu"):
        assert np.array_equal(ds.to_numpy(batch), VALUES[:2])
        break


def test_an_error_in_a_worker_comes_in_order_and_once():
    batches = iter(ds.prefetch(loader(bad=6), "cpu"))
    for i in range(3):
        assert np.array_equal(ds.to_numpy(next(batches)), VALUES[2 * i : 2 * i + 2])
    with pytest.raises(OSError, match="the disk is gone"):
        next(batches)
    with pytest.raises(StopIteration):
        next(batches)
