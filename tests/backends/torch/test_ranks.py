"""Tests of PyTorch's part in sums over ranks, without other processes."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from declared_sums import test_the_adapter_declares_what_was_measured as test_the_adapter_declares_what_was_measured
from declared_sums import test_the_record_is_of_this_version_and_code as test_the_record_is_of_this_version_and_code

from devshim.contract import rank_rendezvous
from devshim.contract.ranks import Place
from devshim.registry import registry
from devshim.testing.ports import free_port


def test_autograd_notices_a_tensor_that_is_assigned_to_itself() -> None:
    """The engine adds in a tensor's own memory, which PyTorch does not see; the assignment afterwards tells it."""
    weight, x = torch.ones(3, requires_grad=True), torch.ones(3)
    product = (weight * x).sum()
    registry.load("torch").assign(x, x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_a_rank_without_rank_0_is_late_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's own client tries for twice the time, and prints the frames of its C++ code."""
    monkeypatch.setattr(rank_rendezvous, "collective_timeout", lambda place: 0.3)
    monkeypatch.setattr(dist, "TCPStore", lambda *_: pytest.fail("PyTorch's client connects"))
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    with pytest.raises(rank_rendezvous.AbsentError):
        registry.load("torch").start_ranks(Place(rank=1, size=2, engine_address=f"127.0.0.1:{free_port()}"))
