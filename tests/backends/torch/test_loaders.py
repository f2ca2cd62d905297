"""Tests of `devshim.prefetch` over PyTorch's loader with worker processes."""

from __future__ import annotations

import numpy as np
import pytest
from loader_cases import VALUES, LoaderCases, Rows

import devshim as ds


class TestTorch(LoaderCases):
    def loader(self, bad=None):
        return ds.framework("torch").utils.data.DataLoader(Rows(bad), 2, num_workers=2)

    def test_an_error_in_a_worker_comes_in_order_and_once(self):
        batches = iter(ds.prefetch(self.loader(bad=6), "cpu"))
        for i in range(3):
            assert np.array_equal(ds.to_numpy(next(batches)), VALUES[2 * i : 2 * i + 2])
        with pytest.raises(OSError, match="the disk is gone"):
            next(batches)
        with pytest.raises(StopIteration):
            next(batches)

    def test_workers_that_stay_belong_to_the_loader(self):
        data = ds.framework("torch").utils.data
        loader = data.DataLoader(Rows(), 2, num_workers=2, persistent_workers=True)
        ahead = ds.prefetch(loader, "cpu")
        for _ in range(2):
            for batch in ahead:
                assert np.array_equal(ds.to_numpy(batch), VALUES[:2])
                break
