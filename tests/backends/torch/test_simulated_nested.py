"""Tests of nested tensors on simulated GPUs in PyTorch: those of layout strided, and attention of jagged ones."""

from __future__ import annotations

import copy
import gc
import io
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from simulated_torch import gpu as gpu
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import devshim as ds

pytestmark = [
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype"),
    pytest.mark.parametrize("gpu", ["sim:1", "cuda:1"], indirect=True),
]


def _parts() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(length, 8, generator=generator) for length in (2, 4, 1)]


def _nested(device: str, **options: Any) -> torch.Tensor:
    return torch.nested.nested_tensor(_parts(), device=device, **options)


def _list(x: torch.Tensor) -> list[Any]:
    return [each.tolist() for each in x.unbind()]


def _layer(kind: type[nn.Module], device: str, *sizes: int) -> nn.Module:
    torch.manual_seed(0)
    return kind(*sizes).to(device)


def _encode(x: torch.Tensor) -> torch.Tensor:
    layer = _layer(nn.TransformerEncoderLayer, str(x.device), 8, 2, 16, 0.0, F.relu, 1e-5, True)
    with torch.no_grad():
        return layer.eval()(x)


def _write_to_parts(x: torch.Tensor) -> torch.Tensor:
    x.unbind()[0].zero_()
    x[1].fill_(1)
    return x


def _heads(x: torch.Tensor) -> torch.Tensor:
    heads = x.view(3, -1, 2, 4).transpose(1, 2)
    return heads.contiguous() if x.is_cpu else heads  # CUDA's kernels accept both, and the formula only the first


CALLS: dict[str, Callable[[torch.Tensor, str], torch.Tensor]] = {
    "make": lambda x, on: x,
    "from tensors": lambda x, on: torch.nested.as_nested_tensor([part.to(on) for part in _parts()]),
    "from the host": lambda x, on: torch.nested.as_nested_tensor(_parts(), device=on),
    "from one tensor": lambda x, on: torch.nested.as_nested_tensor(torch.ones(2, 3, 4, device=on)),
    "move": lambda x, on: torch.nested.nested_tensor(_parts()).to(on),
    "to another dtype": lambda x, on: x.double(),
    "linear": lambda x, on: _layer(nn.Linear, on, 8, 3)(x),
    "layer norm": lambda x, on: _layer(nn.LayerNorm, on, 8)(x),
    "softmax": lambda x, on: x.softmax(-1),
    "product": lambda x, on: x @ x.transpose(1, 2),
    "sum": lambda x, on: x + x - x * 3,
    "activations": lambda x, on: F.gelu(F.silu(F.relu(x).tanh())),
    "in place": lambda x, on: x.mul_(3).add_(x),
    "fill": lambda x, on: x.fill_(2),
    "write to parts": lambda x, on: _write_to_parts(x),
    "chunk": lambda x, on: x.chunk(2, -1)[1],
    "view": lambda x, on: x.view(3, -1, 2, 4).transpose(1, 2).contiguous(),
    "unsqueeze": lambda x, on: x.unsqueeze(1).squeeze(1),
    "clone": lambda x, on: x.clone().detach(),
    "ones_like": lambda x, on: torch.ones_like(x) + torch.zeros_like(x),
    "masks": lambda x, on: x.ge(0).logical_not(),
    "cat": lambda x, on: torch.cat([x, x]),
    "from padded": lambda x, on: torch._nested_from_padded(torch.ones(2, 4, 8, device=on), torch.tensor([[2, 8]] * 2)),
    "copy of a view": lambda x, on: torch.ops.aten._nested_view_from_buffer_copy(
        x.values(), x._nested_tensor_size(), x._nested_tensor_strides(), x._nested_tensor_storage_offsets()
    ),
    "embedding": lambda x, on: _layer(nn.Embedding, on, 5, 3)(
        torch.nested.nested_tensor([torch.tensor([1, 2]), torch.tensor([3])], device=on)
    ),
    "attention": lambda x, on: F.scaled_dot_product_attention(_heads(x), _heads(x), _heads(x)),
    "a layer": lambda x, on: _encode(x),
}
"""Calls that return a nested tensor."""


@pytest.mark.parametrize("name", CALLS)
def test_a_nested_tensor_computes_what_the_cpu_computes(gpu: str, name: str) -> None:
    found, wanted = CALLS[name](_nested(gpu), gpu), CALLS[name](_nested("cpu"), "cpu")
    assert (str(found.device), found.is_nested, found.layout) == (gpu, True, torch.strided)
    assert found.dtype is wanted.dtype
    if name in ("attention", "a layer"):  # the sequences one by one
        for one, other in zip(found.unbind(), wanted.unbind(), strict=True):
            torch.testing.assert_close(one.cpu(), other)
    else:
        assert _list(found) == _list(wanted)


def test_a_nested_tensor_is_padded_printed_and_copied(gpu: str) -> None:
    x, host = _nested(gpu), _nested("cpu")
    padded = x.to_padded_tensor(0.5)
    assert str(padded.device) == str(x[0].device) == gpu
    assert padded.tolist() == host.to_padded_tensor(0.5).tolist()
    assert f"device='{gpu}'" in repr(x)
    assert (x.size(0), x.size(2), x.numel(), x.dim()) == (3, 8, 56, 3)
    assert _list(x.cpu()) == _list(host)
    assert x.cpu().is_cpu
    assert _list(ds.place(x, "cpu")) == _list(ds.place(host, "gpu:1")) == _list(host)
    assert ds.device_of(ds.place(host, "gpu:1")) is ds.gpu(1)
    assert ds.device_of(ds.place(x, "gpu:0")) is ds.gpu(0)


def test_a_nested_tensor_is_saved(gpu: str) -> None:
    file = io.BytesIO()
    torch.save(_nested(gpu), file)
    file.seek(0)
    loaded = torch.load(file)
    assert str(loaded.device) == gpu
    assert _list(loaded) == _list(_nested("cpu"))


def test_the_memory_of_a_nested_tensor_is_counted(gpu: str) -> None:
    gc.collect()
    assert ds.memory("gpu:1").used == 0
    x = torch.nested.nested_tensor([torch.ones(100), torch.ones(28)], device=gpu)
    assert ds.memory("gpu:1").used == 512
    view = x.unbind()[1]
    del x
    gc.collect()
    assert ds.memory("gpu:1").used == 512
    del view
    gc.collect()
    assert ds.memory("gpu:1").used == 0


def test_gradients_flow_through_a_nested_tensor(gpu: str) -> None:
    """The first use of one that requires a gradient must not end the process."""
    grads = []
    for device in (gpu, "cpu"):
        leaf, layer = _nested(device, requires_grad=True), _layer(nn.Linear, device, 8, 8)
        parts = [part.to(device).requires_grad_() for part in _parts()]
        x = F.gelu(layer(leaf)) + torch.nested.as_nested_tensor(parts)
        (x.softmax(-1) @ x.transpose(1, 2) @ x).to_padded_tensor(0.0).square().sum().backward()
        assert leaf.grad is not None
        assert str(leaf.grad.device) == device
        grads.append([_list(leaf.grad), layer.weight.grad.tolist(), [part.grad.tolist() for part in parts]])
    assert grads[0] == grads[1]


def test_a_nested_parameter_moves_with_its_module(gpu: str) -> None:
    parameter = nn.Parameter(_nested("cpu"))
    module = nn.ParameterList([parameter]).to(gpu)
    assert module[0] is parameter
    assert str(parameter.device) == gpu
    (parameter * 2).to_padded_tensor(0.0).sum().backward()
    module.cpu()
    assert parameter.grad is not None
    assert parameter.grad.is_cpu
    assert _list(parameter.grad) == _list(torch.ones_like(parameter) * 2)


def test_dropout_draws_from_the_generator_of_the_gpu(gpu: str) -> None:
    torch.manual_seed(0)
    dense = F.dropout(torch.ones(7 * 8, device=gpu), 0.5)
    state = torch.get_rng_state()
    torch.manual_seed(0)
    x = torch.ones_like(_nested(gpu)).requires_grad_()
    dropped = F.dropout(x, 0.5)
    dropped.to_padded_tensor(0.0).sum().backward()
    assert dropped.values().tolist() == dense.tolist()
    assert x.grad is not None
    assert x.grad.values().tolist() == dense.tolist()
    assert torch.equal(torch.get_rng_state(), state), "the host's generator"


@pytest.mark.parametrize("records", [False, True])
def test_an_encoder_packs_padded_sequences(gpu: str, records: bool) -> None:
    """PyTorch packs them only if no gradients are recorded; padding in its results is then 0."""
    mask = torch.tensor([[False] * 3 + [True] * 2, [False] * 5, [False] * 2 + [True] * 3])
    results = []
    for device in (gpu, "cpu"):
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        encoder = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(8), enable_nested_tensor=True).to(device).eval()
        source = torch.ones(3, 5, 8).cumsum(-1).to(device)
        with torch.set_grad_enabled(records):
            result = encoder(source, src_key_padding_mask=mask.to(device))
        assert str(result.device) == device
        results.append(result.cpu())
    torch.testing.assert_close(*results)
    assert (results[0][mask] == 0).all().item() is not records


def test_attention_in_any_layout_and_with_a_causal_mask(gpu: str) -> None:
    """The formula of the CPU refuses both; CUDA's fused kernels accept them."""
    for options in ({}, {"is_causal": True}, {"scale": 0.3}):
        leaf = _nested(gpu, requires_grad=True)
        heads = _heads(leaf)
        assert not heads.is_contiguous()
        F.scaled_dot_product_attention(heads, heads, heads, **options).to_padded_tensor(0.0).square().sum().backward()
        for part, grad in zip(_parts(), leaf.grad.unbind(), strict=True):
            rows = part.to(gpu).requires_grad_()
            one = rows.view(1, -1, 2, 4).transpose(1, 2)
            F.scaled_dot_product_attention(one, one, one, **options).square().sum().backward()
            torch.testing.assert_close(grad, rows.grad)


@pytest.mark.parametrize(
    ("dtype", "kernel"),
    [
        *[(dtype, None) for dtype in (torch.float32, torch.float16, torch.float64)],
        *[(torch.float32, kernel) for kernel in (SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION)],
        (torch.float16, SDPBackend.FLASH_ATTENTION),
    ],
)
def test_attention_of_jagged_tensors(gpu: str, dtype: torch.dtype, kernel: Any) -> None:
    """PyTorch chooses the kernel in Python, by the functions that a build for CUDA has."""
    jagged = torch.nested.nested_tensor(_parts(), dtype=dtype, device=gpu, layout=torch.jagged, requires_grad=True)
    for causal in (False,) if kernel is SDPBackend.MATH else (False, True):
        heads = jagged.unflatten(-1, [2, 4]).transpose(1, 2)
        with nullcontext() if kernel is None else sdpa_kernel(kernel):
            found = F.scaled_dot_product_attention(heads, heads, heads, is_causal=causal)
        found.values().square().sum().backward()
        jagged.grad = None  # PyTorch cannot add to it
        assert str(found.device) == gpu
        for part, result in zip(_parts(), found.unbind(), strict=True):
            one = part.to(gpu, dtype).view(-1, 2, 4).transpose(0, 1)[None]
            wanted = F.scaled_dot_product_attention(one, one, one, is_causal=causal)[0]
            torch.testing.assert_close(result, wanted, rtol=CLOSE[dtype], atol=CLOSE[dtype])


CLOSE = {torch.float32: 1e-5, torch.float16: 3e-3, torch.float64: 1e-12}
LACKING: dict[str, Callable[[torch.Tensor], Any]] = {
    "aten::sum": lambda x: x.sum(),
    "aten::sum.dim_IntList": lambda x: x.sum(-1, keepdim=True),
    "aten::exp": lambda x: x.exp(),
    "aten::new_empty": copy.deepcopy,
}
"""Operators that PyTorch does not have for nested tensors on CUDA; the CPU has the second."""


@pytest.mark.parametrize("name", LACKING)
def test_what_cuda_lacks_is_refused(gpu: str, name: str) -> None:
    text = f"Could not run '{name}' with arguments from the 'NestedTensorCUDA' backend"
    with pytest.raises(NotImplementedError, match=text):
        LACKING[name](_nested(gpu))


@pytest.mark.parametrize("call", [lambda x, y: x + y, lambda x, y: y @ x, lambda x, y: nn.Linear(8, 2)(x)])
def test_tensors_on_two_devices_are_refused(gpu: str, call: Callable[..., Any]) -> None:
    with pytest.raises(ds.DeviceMismatchError, match="at least two devices"):
        call(_nested(gpu), _nested("cpu"))


def test_a_late_copy_is_complete(gpu: str) -> None:
    """A nested tensor arrives with the call, also if other copies arrive late."""
    with ds.simulate(2, native_names=gpu == "cuda:1", async_copies="late"):
        there = _nested("cpu").to(gpu, non_blocking=True)
        assert _list(there.to("cpu", non_blocking=True)) == _list(_nested("cpu"))
