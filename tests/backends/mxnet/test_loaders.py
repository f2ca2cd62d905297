"""Tests of `devshim.prefetch` over Gluon's loader with worker processes."""

from __future__ import annotations

import pytest
from loader_cases import OrderedLoaderCases, Rows

import devshim as ds

# MXNet 2.0 causes these warnings itself, by calling functions that it has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:.*(as_in_context|Context class|ndarray.ctx):DeprecationWarning")


class TestGluon(OrderedLoaderCases):
    def loader(self, bad=None):
        return ds.framework("mxnet").gluon.data.DataLoader(Rows(bad), 2, num_workers=2)
