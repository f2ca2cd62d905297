"""Tests of quantized tensors with one scale per channel: PyTorch cannot copy, slice or join all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import devshim as ds

pytestmark = pytest.mark.filterwarnings("ignore:.*quantiz", "ignore:.*TypedStorage is deprecated")

VALUES = torch.linspace(-2, 2, 12).view(3, 4)
ZEROS = {"integers": torch.tensor([0, 1, 2]), "floats": torch.tensor([0.0, 1.0, 2.0])}


@pytest.fixture(autouse=True)
def gpus() -> Iterator[None]:
    ds.use("torch")
    with ds.simulate(2):
        yield
    ds.use(None)


def _quantized(zeros: str, dtype: torch.dtype = torch.quint8, scale: float = 0.1) -> torch.Tensor:
    scales = torch.tensor([scale, 0.2, 0.3])
    return torch.quantize_per_channel(VALUES, scales, ZEROS[zeros], 0, dtype)


def _read(x: torch.Tensor) -> list[Any]:
    parameters = [x.q_per_channel_scales().tolist(), x.q_per_channel_zero_points().tolist(), x.q_per_channel_axis()]
    return [*parameters, x.int_repr().tolist(), x.dequantize().tolist(), x.qscheme(), x.dtype]


@pytest.mark.parametrize("dtype", [torch.quint8, torch.quint4x2])
@pytest.mark.parametrize("zeros", ZEROS)
def test_a_copy_has_new_memory_and_the_same_parameters(zeros: str, dtype: torch.dtype) -> None:
    if dtype is torch.quint4x2 and zeros == "integers":
        pytest.skip("PyTorch does not have these")
    x = _quantized(zeros, dtype)
    for made in (ds.copy(x, "cpu"), ds.copy([x], "cpu")[0], ds.broadcast(x, ["cpu", "cpu"])[1]):
        assert made.data_ptr() != x.data_ptr()
        assert _read(made) == _read(x)


@pytest.mark.parametrize("device", ["cpu", "gpu:1"])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("zeros", ZEROS)
def test_gather_restores_what_split_has_divided(zeros: str, axis: int, device: str) -> None:
    """A part of one channel may have one scale, by PyTorch."""
    x = _quantized(zeros)
    parts = ds.split(ds.place(x, device), [device, "cpu"], axis=axis)
    joined = torch.cat([part.dequantize().cpu() for part in parts], dim=axis)
    assert joined.tolist() == x.dequantize().tolist()
    gathered = ds.gather(parts, device, axis=axis)
    assert ds.device_of(gathered) is ds.device(device)
    assert _read(gathered.cpu()) == _read(x)


def test_tensors_that_cannot_be_joined_are_refused() -> None:
    x, whole = _quantized("integers"), torch.quantize_per_tensor(VALUES, 0.1, 0, torch.quint8)
    for others, text in (
        ([_quantized("integers", scale=0.4)], "with different scales"),
        ([_quantized("floats")], "of different kinds"),
        ([whole], "with different scales"),
    ):
        with pytest.raises(ds.UnsupportedError, match=f"cannot join quantized tensors {text}") as caught:
            ds.gather([x, *others], "cpu", axis=1)
        assert caught.value.hint == "call x.dequantize() first"
    assert ds.gather([x, _quantized("integers", scale=0.4)], "cpu").shape == (6, 4)


def test_parts_of_bytes_are_refused() -> None:
    """PyTorch's own slice of such a tensor has wrong values."""
    x = _quantized("floats", torch.quint4x2)
    for call in (lambda: ds.split(x, ["cpu", "cpu"]), lambda: ds.gather([x, x], "cpu")):
        with pytest.raises(ds.UnsupportedError, match=r"PyTorch cannot (split|join) a tensor of quint4x2"):
            call()
