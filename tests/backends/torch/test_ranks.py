"""Tests of PyTorch's part in sums over ranks, without other processes."""

from __future__ import annotations

import pytest
import torch
from declared_sums import test_the_adapter_declares_what_was_measured as test_the_adapter_declares_what_was_measured
from declared_sums import test_the_record_is_of_this_version_and_code as test_the_record_is_of_this_version_and_code

from devshim.registry import registry


def test_autograd_notices_a_tensor_that_is_assigned_to_itself() -> None:
    """The engine adds in a tensor's own memory, which PyTorch does not see; the assignment afterwards tells it."""
    weight, x = torch.ones(3, requires_grad=True), torch.ones(3)
    product = (weight * x).sum()
    registry.load("torch").assign(x, x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()
