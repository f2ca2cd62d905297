"""Tests of the texts of PyTorch's errors without native names: they name the simulated GPU, not PyTorch's key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import devshim as ds

pytestmark = pytest.mark.filterwarnings("ignore:.*quantiz", "ignore:.*torch.jit:DeprecationWarning")


@pytest.fixture(autouse=True)
def cards() -> Iterator[None]:
    """Simulate two GPUs under their own name."""
    with ds.simulate(2):
        yield


def _pinned(x: torch.Tensor) -> torch.Tensor:
    return x.pin_memory()


CALLS: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: torch.sparse_coo_tensor(torch.tensor([[0], [1]]), torch.ones(1, device="sim:1")),
        "backend of indices (CPU) must match backend of values (SIM)",
    ),
    (
        lambda: torch.quantize_per_tensor(torch.ones(2, device="sim:1"), 0.1, 0, torch.qint8).type(),
        "Unimplemented backend QuantizedSIM",
    ),
    (lambda: torch.ones(2, device="mps"), ", SIM, Meta, "),
    (lambda: torch.device("foo:1"), "sim device type at start of device string: foo"),
    (lambda: torch.empty(2, pin_memory=True), "Hint: make the tensor without pin_memory"),
    (lambda: torch.jit.script(_pinned)(torch.ones(2)), "pin it in Python: x.pin_memory()"),
    (lambda: torch.ones(2, device="sim:1").untyped_storage().resize_(100), "Hint: make another tensor of the new size"),
]


@pytest.mark.parametrize(("call", "text"), CALLS, ids=[text for _, text in CALLS])
def test_an_error_names_the_simulated_gpu(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(RuntimeError) as caught:
        call()
    assert text in str(caught.value)
    assert "rivateuse" not in str(caught.value).lower().replace("privateuse2", "").replace("privateuse3", "")


def test_after_the_simulation_errors_have_the_text_of_pytorch() -> None:
    ds.simulate(0)
    text = "PrivateUse1 is PyTorch's key"
    assert str(RuntimeError(text)) == text
    assert str(NotImplementedError(text)) == text
