"""The conformance kit's tests of `data_parallel` with models on Flax NNX."""

from __future__ import annotations

from typing import Any

import pytest

from devshim.testing.behaviours.data_parallel_models import DataParallelModelTests

pytest.importorskip("flax", reason="flax is not installed")


class TestNnxOnJax(DataParallelModelTests):
    backend = "jax"

    def model(self) -> Any:
        from flax import nnx

        rngs = nnx.Rngs(0)
        return nnx.Sequential(
            nnx.Linear(4, 8, use_bias=False, rngs=rngs),
            nnx.BatchNorm(8, rngs=rngs),
            nnx.relu,
            nnx.Linear(8, 3, rngs=rngs),
        )
