"""Tests of quantized tensors on simulated GPUs in PyTorch: CUDA has few operators on them."""

from __future__ import annotations

import copy
import gc
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from simulated_torch import gpu as gpu
from torch.nn import functional as F

import devshim as ds

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*quantiz", "ignore:.*TypedStorage is deprecated"),
    pytest.mark.parametrize("gpu", ["sim:1", "cuda:1"], indirect=True),
]

SCALES, ZEROS = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0, 1, 2])


def _values(on: str) -> torch.Tensor:
    return torch.linspace(-2, 2, 12).view(3, 4).to(on)


def _per_channel(on: str, zero_points: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.quantize_per_channel(_values(on), SCALES.to(on), zero_points.to(on), 0, dtype)


MAKE: dict[str, Callable[[str], torch.Tensor]] = {
    "tensor": lambda on: torch.quantize_per_tensor(_values(on), 0.05, 3, torch.quint8),
    "32 bits": lambda on: torch.quantize_per_tensor(_values(on), 0.05, 3, torch.qint32),
    "dynamic": lambda on: torch.quantize_per_tensor_dynamic(_values(on), torch.qint8, False),
    "parameters": lambda on: torch.quantize_per_tensor(
        _values(on), torch.tensor(0.1, device=on), torch.tensor(1, device=on), torch.qint8
    ),
    "channels": lambda on: _per_channel(on, ZEROS, torch.qint8),
    "channels with floats": lambda on: _per_channel(on, ZEROS.float(), torch.quint8),
    "integers": lambda on: torch._make_per_tensor_quantized_tensor(_values(on).char(), 0.5, 1),
    "integers with channels": lambda on: torch._make_per_channel_quantized_tensor(
        _values(on).char(), SCALES.to(on), ZEROS.to(on), 0
    ),
}
"""Calls that quantize."""


def _parameters(x: torch.Tensor) -> list[Any]:
    if x.qscheme() is torch.per_tensor_affine:
        return [x.q_scale(), x.q_zero_point()]
    channels = x.q_per_channel_scales(), x.q_per_channel_zero_points()
    assert {each.device for each in channels} == {x.device}
    return [*[each.tolist() for each in channels], x.q_per_channel_axis()]


def _same(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Return True if two tensors have the same values; quantized ones also the same integers and parameters."""
    assert found.dtype is wanted.dtype
    if not wanted.is_quantized:
        return found.tolist() == wanted.tolist()
    parameters = _parameters(found) == _parameters(wanted)
    return parameters and all(
        each(found).tolist() == each(wanted).tolist() for each in (torch.int_repr, torch.dequantize)
    )


@pytest.mark.parametrize("kind", MAKE)
def test_values_are_quantized_copied_and_dequantized(gpu: str, kind: str) -> None:
    x, host = MAKE[kind](gpu), MAKE[kind]("cpu")
    assert {str(each.device) for each in (x, x.dequantize(), x.int_repr(), x.detach())} == {gpu}
    assert x.is_quantized
    assert x.qscheme() is host.qscheme()
    for moved in (x, host.to(gpu), ds.place(host, "gpu:1"), copy.deepcopy(x), MAKE[kind](gpu).copy_(host)):
        assert str(moved.device) == gpu
        assert _same(moved, host)
    for moved in (x.cpu(), ds.place(x, "cpu"), ds.copy(x, "cpu"), MAKE[kind]("cpu").copy_(x)):
        assert moved.is_cpu
        assert _same(moved, host)
    assert ds.device_of(ds.place(x, "gpu:0")) is ds.gpu(0)
    assert repr(x).startswith(repr(host)[:40])
    assert f"device='{gpu}'" in repr(x)


@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize("map_location", [None, "cpu"])
def test_a_quantized_tensor_is_saved(gpu: str, kind: str, map_location: str | None) -> None:
    file = io.BytesIO()
    torch.save(MAKE[kind](gpu), file)
    file.seek(0)
    loaded = torch.load(file, map_location=map_location)
    assert str(loaded.device) == (map_location or gpu)
    assert _same(loaded, MAKE[kind]("cpu"))


def _write_to_a_row(x: torch.Tensor) -> torch.Tensor:
    x[0].fill_(1.0)
    x[1] = x[2]
    return x


def _copy_other_parameters(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    return y.copy_(torch.quantize_per_tensor(x.dequantize()[:1] * 2, 0.5, 1, torch.quint8))


CALLS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "clone": torch.clone,
    "view": lambda x: x.view(4, 3)[:, 1:].unsqueeze(0),
    "transpose": lambda x: x.t().contiguous(),
    "relu": F.relu,
    "flip": lambda x: x.flip(0),
    "max": lambda x: x.max(1)[0],
    "fill_": lambda x: x.fill_(1.0),
    "masked_fill_": lambda x: x.masked_fill_(x.dequantize() > 0, 0.5),
    "index_select": lambda x: torch.index_select(x, 1, torch.tensor([1], device=x.device)),
    "rows": _write_to_a_row,
    "copy_": _copy_other_parameters,
    "float": lambda x: x.copy_(x.dequantize() * 2),
    "pool": lambda x: F.adaptive_avg_pool2d(x.view(1, 3, 2, 2), 1),
    "empty": lambda x: torch._empty_affine_quantized(
        [2, 3], scale=0.5, zero_point=1, dtype=torch.qint8, device=x.device
    ).fill_(1.0),
    "empty per channel": lambda x: torch._empty_per_channel_affine_quantized(
        [3, 2],
        scales=SCALES.to(x.device),
        zero_points=ZEROS.to(x.device),
        axis=0,
        dtype=torch.qint8,
        device=x.device,
    ).fill_(1.0),
}
"""Calls that CUDA has, too."""


@pytest.mark.parametrize("name", CALLS)
def test_an_operator_computes_what_the_cpu_computes(gpu: str, name: str) -> None:
    found, wanted = (CALLS[name](MAKE["tensor"](on)) for on in (gpu, "cpu"))
    assert str(found.device) == gpu
    assert _same(found, wanted)


LACKING: dict[str, Callable[[torch.Tensor], Any]] = {
    "aten::cat.out": lambda x: torch.cat([x, x]),
    "aten::add.out": lambda x: x + x,
    "aten::equal": lambda x: torch.equal(x, x),
    "aten::max": lambda x: x.max(),
    "aten::resize_": lambda x: x.resize_(2, 2),
    "aten::dequantize.tensors": lambda x: torch.dequantize([x]),
    "quantized::add": lambda x: torch.ops.quantized.add(x, x, 0.1, 0),
}
"""Operators that PyTorch has only for the CPU, or nowhere."""


@pytest.mark.parametrize("name", LACKING)
def test_what_cuda_lacks_is_refused(gpu: str, name: str) -> None:
    text = f"Could not run '{name}' with arguments from the 'QuantizedCUDA' backend"
    with pytest.raises(NotImplementedError, match=text):
        LACKING[name](MAKE["tensor"](gpu))


def test_lists_of_tensors_are_not_quantized(gpu: str) -> None:
    text = r"Could not run 'aten::quantize_per_tensor.tensors' with arguments from the 'CUDA' backend"
    with pytest.raises(NotImplementedError, match=text):
        torch.quantize_per_tensor(
            [_values(gpu)], torch.tensor([0.1], device=gpu), torch.tensor([0], device=gpu), torch.qint8
        )


def test_parameters_on_the_host_are_refused(gpu: str) -> None:
    with pytest.raises(ds.DeviceMismatchError, match="at least two devices"):
        torch.quantize_per_channel(_values(gpu), SCALES, ZEROS, 0, torch.qint8)


def test_the_memory_of_a_quantized_tensor_is_counted(gpu: str) -> None:
    gc.collect()
    assert ds.memory("gpu:1").used == 0
    x = MAKE["tensor"](gpu)
    gc.collect()
    assert ds.memory("gpu:1").used == 512
    row = x[1]
    host = x.cpu()
    del x
    assert ds.memory("gpu:1").used == 512
    del row
    gc.collect()
    assert ds.memory("gpu:1").used == 0
    assert _same(host, MAKE["tensor"]("cpu"))
