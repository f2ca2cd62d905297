"""Tests of `devshim.prefetch` over PyTorch's loader with worker processes."""

from __future__ import annotations

import numpy as np
from loader_cases import VALUES, OrderedLoaderCases, Rows

import devshim as ds


class TestTorchPinned(OrderedLoaderCases):
    """A loader that pins its batches in its own thread, as programs for GPUs ask for."""

    def loader(self, bad=None):
        ds.simulate(gpus=1)  # without a GPU, PyTorch pins nothing and warns
        loader = ds.framework("torch").utils.data.DataLoader(Rows(bad), 2, num_workers=2, pin_memory=True)
        if bad is None:
            assert next(iter(loader)).is_pinned()
        return loader


class TestTorch(OrderedLoaderCases):
    def loader(self, bad=None):
        return ds.framework("torch").utils.data.DataLoader(Rows(bad), 2, num_workers=2)

    def test_workers_that_stay_belong_to_the_loader(self):
        data = ds.framework("torch").utils.data
        loader = data.DataLoader(Rows(), 2, num_workers=2, persistent_workers=True)
        ahead = ds.prefetch(loader, "cpu")
        for _ in range(2):
            for batch in ahead:
                assert np.array_equal(ds.to_numpy(batch), VALUES[:2])
                break
