"""Decompositions of tensors with TensorLy on a simulated GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import tensorly
import torch
from tensorly.decomposition import parafac, tucker

import devshim as ds


@pytest.fixture(autouse=True)
def on_pytorch() -> Iterator[None]:
    with tensorly.backend_context("pytorch"):
        yield


def test_parafac_is_the_same_on_a_simulated_gpu(gpu: ds.Device) -> None:
    x = torch.rand(4, 5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    here = parafac(ds.place(x, gpu), rank=2, init="svd", n_iter_max=20)
    expected = parafac(x, rank=2, init="svd", n_iter_max=20)
    for factor, other in zip(here.factors, expected.factors, strict=True):
        assert ds.device_of(factor) is gpu
        torch.testing.assert_close(ds.place(factor, "cpu"), other)


def test_tucker_restores_a_tensor_on_a_simulated_gpu(gpu: ds.Device) -> None:
    x = torch.rand(4, 5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    core, factors = tucker(ds.place(x, gpu), rank=[4, 5, 6])
    restored = tensorly.tucker_to_tensor((core, factors))
    assert ds.device_of(restored) is gpu
    torch.testing.assert_close(ds.place(restored, "cpu"), x)
