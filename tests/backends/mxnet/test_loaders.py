"""Tests of `devshim.prefetch` over Gluon's loader with worker processes."""

from __future__ import annotations

import numpy as np
import pytest
from loader_cases import VALUES, LoaderCases, Rows

import devshim as ds

# MXNet 2.0 causes these warnings itself, by calling functions that it has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:.*(as_in_context|Context class|ndarray.ctx):DeprecationWarning")


class TestGluon(LoaderCases):
    def loader(self, bad=None):
        return ds.framework("mxnet").gluon.data.DataLoader(Rows(bad), 2, num_workers=2)

    def test_an_error_in_a_worker_comes_in_order_and_once(self):
        batches = iter(ds.prefetch(self.loader(bad=6), "cpu"))
        for i in range(3):
            assert np.array_equal(ds.to_numpy(next(batches)), VALUES[2 * i : 2 * i + 2])
        with pytest.raises(OSError, match="the disk is gone"):
            next(batches)
        with pytest.raises(StopIteration):
            next(batches)
