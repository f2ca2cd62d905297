"""Tests of storages of PyTorch on simulated GPUs."""

from __future__ import annotations

import warnings

import pytest
import torch
from simulated_torch import gpu as gpu


@pytest.mark.filterwarnings("ignore:.*TypedStorage is deprecated")
@pytest.mark.parametrize("gpu", ["sim:1", "cuda:1"], indirect=True)
@pytest.mark.parametrize("storage", [torch.Tensor.storage, torch.Tensor.untyped_storage])
def test_a_new_tensor_of_a_storage_shares_its_memory(gpu, storage):
    x = torch.arange(4.0, device=gpu)
    memory = storage(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the collate function of a loader's workers makes this call
        x.new(memory).add_(1)
    assert x.tolist() == [1.0, 2.0, 3.0, 4.0]
