"""Tests of operators on simulated GPUs that PyTorch has for CUDA and not for the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torchgen
import yaml
from devshim_backends._torch.simulation.internals.cuda_only import REFUSED, REFUSED_SPARSE_CSR, lacking_error
from simulated_torch import GPU, is_on_gpu, two_gpus_for_module  # noqa: F401 - a fixture
from torch.nn import functional as F

aten = torch.ops.aten
COMPUTED_FROM_OTHERS = {"SparseCsr": {"bmm.out", "baddbmm", "baddbmm_", "baddbmm.out"}, "Sparse": set(), "": set()}
"""Operators that have no kernel of their own: a formula computes them when the CPU's kernel has refused."""


pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")


def drawn(*shape, dtype=torch.float32):
    """Return drawn numbers as a host tensor."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def dispatch_keys(entry, entries):
    """Return the dispatch keys with a kernel of an operator."""
    table = entry.get("dispatch")
    if table is None and "structured_delegate" in entry:
        return dispatch_keys(entries[entry["structured_delegate"]], entries)
    return {key.strip() for keys in table or ["CompositeImplicitAutograd"] for key in keys.split(",")}


def only_of_cuda(form):
    """Return PyTorch's operators, on tensors of a form, with a kernel for CUDA and none for the CPU."""
    path = Path(torchgen.__file__).parent / "packaged" / "ATen" / "native" / "native_functions.yaml"
    listed = yaml.load(path.read_text(), yaml.CSafeLoader)
    entries = {entry["func"].partition("(")[0]: entry for entry in listed}
    keys = {name: dispatch_keys(entry, entries) for name, entry in entries.items()}
    return {
        name
        for name, found in keys.items()
        if f"{form}CUDA" in found
        and f"{form}CPU" not in found
        and not any(key.startswith("Composite") for key in found)
    }


@pytest.mark.parametrize(("form", "refused"), [("", REFUSED), ("Sparse", {}), ("SparseCsr", REFUSED_SPARSE_CSR)])
def test_each_operator_that_only_cuda_has_is_computed_or_declared(form, refused):
    names, has_kernel = only_of_cuda(form), torch._C._dispatch_has_kernel_for_dispatch_key
    computed = {name for name in names if has_kernel(f"aten::{name}", f"{form}PrivateUse1")}
    computed |= COMPUTED_FROM_OTHERS[form] & names
    assert names - computed - set(refused) == set(), "new operators: compute them, or declare them in `cuda_only`"
    assert set(refused) & computed == set()
    if torch.__version__ >= "2.13":
        assert set(refused) - names == set()


def test_a_refusal_names_the_operator_the_reason_and_what_to_write_instead():
    x = torch.ones(2, 3, device=GPU)
    text = r"(?s)'aten::miopen_batch_norm' on a simulated GPU: only PyTorch's builds for GPUs of AMD.*Hint: leave out"
    with pytest.raises(NotImplementedError, match=text):
        torch.miopen_batch_norm(x, x[0], x[0], None, None, True, 0.1, 1e-5)
    rows = torch.eye(3).to_sparse_csr().to(GPU)
    with pytest.raises(NotImplementedError, match=r"(?s)'aten::_spsolve' on a simulated GPU: it needs cuDSS.*Hint"):
        torch.sparse.spsolve(rows, x[0])


def test_an_operator_that_is_in_no_table_is_refused_by_its_name():
    found = lacking_error("Could not run 'aten::new' with arguments from the 'CPU' backend. This could be because")
    assert str(found).startswith("Could not run 'aten::new' on a simulated GPU: the CPU computes for it, where PyTorch")
    assert lacking_error("Could not run 'aten::new' with arguments from the 'SparseCPU' backend") is None


def test_convolutions_of_cudnn():
    x, weight, bias = drawn(2, 4, 6, 6), drawn(8, 2, 3, 3), drawn(8)
    settings, choices = ([1, 1], [2, 2], [1, 1], 2), (False, False, True)
    card = x.to(GPU), weight.to(GPU).requires_grad_()
    found = torch.cudnn_convolution(*card, *settings, *choices)
    host = weight.clone().requires_grad_()
    expected = F.conv2d(x, host, None, 2, 1, 1, 2)
    assert torch.equal(found.cpu(), expected)
    found.sum().backward()
    expected.sum().backward()
    assert torch.equal(card[1].grad.cpu(), host.grad)
    into = torch.empty(0, device=GPU)
    moved, with_bias = (x.to(GPU), weight.to(GPU)), F.conv2d(x, weight, bias, 2, 1, 1, 2)
    assert torch.equal(aten.cudnn_convolution.out(*moved, *settings, *choices, out=into), found)
    relu = torch.cudnn_convolution_relu(*moved, bias.to(GPU), [2, 2], [1, 1], [1, 1], 2)
    assert torch.equal(relu.cpu(), with_bias.relu())
    term = drawn(*with_bias.shape)
    added = torch.cudnn_convolution_add_relu(*moved, term.to(GPU), 0.5, bias.to(GPU), [2, 2], [1, 1], [1, 1], 2)
    assert torch.allclose(added.cpu(), (with_bias + 0.5 * term).relu())
    back = torch.cudnn_convolution_transpose(moved[0], weight[:4].to(GPU), [1, 1], [0, 0], [2, 2], [1, 1], 2, *choices)
    assert torch.equal(back.cpu(), F.conv_transpose2d(x, weight[:4], None, 2, 1, 0, 2))


def test_convolutions_by_channel():
    x, weight = drawn(2, 3, 5, 5), drawn(3, 1, 3, 3)
    found = aten._conv_depthwise2d(x.to(GPU), weight.to(GPU), [3, 3], None, [1, 1], [1, 1], [1, 1])
    assert torch.equal(found.cpu(), F.conv2d(x, weight, None, 1, 1, 1, 3))
    deep = aten.conv_depthwise3d(
        x[:, :, None].to(GPU), weight[:, :, None].to(GPU), [1, 3, 3], None, [1, 1, 1], [0, 1, 1], [1, 1, 1]
    )
    assert torch.allclose(deep[:, :, 0].cpu(), found.cpu(), atol=1e-6)


def test_batch_norm_of_cudnn_updates_the_statistics_and_has_a_gradient():
    x, host_x = drawn(4, 3, 2, 2).to(GPU).requires_grad_(), drawn(4, 3, 2, 2).requires_grad_()
    weight, bias = drawn(3), drawn(3)
    statistics, host_statistics = (
        [torch.zeros(3, device=GPU), torch.ones(3, device=GPU)],
        [torch.zeros(3), torch.ones(3)],
    )
    found = torch.cudnn_batch_norm(x, weight.to(GPU), bias.to(GPU), *statistics, True, 0.1, 1e-5)
    expected = torch.native_batch_norm(host_x, weight, bias, *host_statistics, True, 0.1, 1e-5)
    assert all(torch.equal(a.cpu(), b) for a, b in zip(found[:3], expected, strict=True))
    assert all(torch.equal(a.cpu(), b) for a, b in zip(statistics, host_statistics, strict=True))
    found[0].square().sum().backward()
    expected[0].square().sum().backward()
    assert torch.equal(x.grad.cpu(), host_x.grad)


def test_sampling_of_cudnn():
    theta, x = drawn(2, 2, 3), drawn(2, 3, 4, 5)
    card_theta = theta.to(GPU).requires_grad_()
    host_theta = theta.clone().requires_grad_()
    grid = torch.cudnn_affine_grid_generator(card_theta, 2, 3, 4, 5)
    expected = F.affine_grid(host_theta, [2, 3, 4, 5], align_corners=True)
    assert torch.allclose(grid.cpu(), expected)
    sampled = torch.cudnn_grid_sampler(x.to(GPU), grid)
    expected_sampled = F.grid_sample(x, expected, align_corners=True)
    assert torch.allclose(sampled.cpu(), expected_sampled, atol=1e-6)
    sampled.sum().backward()
    expected_sampled.sum().backward()
    assert torch.allclose(card_theta.grad.cpu(), host_theta.grad, atol=1e-4)


def test_fused_dropout_keeps_a_share_of_the_elements():
    x = torch.ones(1000, device=GPU, requires_grad=True)
    dropped, mask = torch._fused_dropout(x, 0.75)
    assert (mask.dtype, is_on_gpu(dropped)) == (torch.uint8, True)
    assert 650 < int(mask.sum()) < 850
    assert torch.equal(dropped, mask / 0.75)
    dropped.sum().backward()
    assert torch.allclose(x.grad, dropped.detach())


def test_the_gradient_of_rms_norm():
    x, weight, grad = drawn(2, 5, 4).requires_grad_(), drawn(4).requires_grad_(), drawn(2, 5, 4)
    F.rms_norm(x, [4], weight, 1e-5).backward(grad)
    factor = torch.rsqrt(x.detach().square().mean(-1, keepdim=True) + 1e-5)
    arguments = [each.detach().to(GPU) for each in (grad, x)], [4], factor.to(GPU), weight.detach().to(GPU)
    of_x, of_weight = aten._fused_rms_norm_backward(*arguments[0], *arguments[1:], [True, True])
    assert torch.allclose(of_x.cpu(), x.grad, atol=1e-5)
    assert torch.allclose(of_weight.cpu(), weight.grad, atol=1e-5)


def test_products_of_matrices_with_compressed_rows():
    dense, right, term = drawn(2, 3, 3).relu(), drawn(2, 3, 4), drawn(2, 3, 4)
    rows = torch.stack([dense[0], dense[0]]).to_sparse_csr().to(GPU)
    expected = dense[0] @ right
    assert torch.allclose(torch.bmm(rows, right.to(GPU)).cpu(), expected)
    assert torch.allclose(torch.baddbmm(term.to(GPU), rows, right.to(GPU), beta=2).cpu(), expected + 2 * term)
    changed = term.to(GPU)
    assert changed.baddbmm_(rows, right.to(GPU)) is changed
    assert torch.allclose(changed.cpu(), expected + term)


def semi_structured(rows, columns, dtype):
    """Return a host matrix with two numbers in each group of four."""
    x = drawn(rows, columns, dtype=torch.float32).mul(8).round()
    keep = torch.tensor([0, 1, 1, 0, 1, 0, 0, 1]).tile(rows, columns // 8)
    return (x * keep).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int8])
def test_semi_structured_matrices_of_cusparselt(dtype):
    matrix, right = semi_structured(32, 64, dtype), drawn(64, 16).mul(4).round().to(dtype)
    packed = torch._cslt_compress(matrix.to(GPU))
    assert packed.numel() * 16 == matrix.numel() * (10 if dtype is torch.int8 else 9 if dtype.itemsize == 2 else 8.5)
    out_dtype = torch.int32 if dtype is torch.int8 else None
    found = torch._cslt_sparse_mm(packed, right.to(GPU), out_dtype=out_dtype)
    expected = (matrix.double() @ right.double()).to(out_dtype or dtype)
    assert torch.equal(found.cpu(), expected)
    turned = torch._cslt_sparse_mm(packed, right.to(GPU), out_dtype=out_dtype, transpose_result=True)
    assert torch.equal(turned, found.t())


def test_cusparselt_refuses_a_matrix_with_more_numbers():
    with pytest.raises(RuntimeError, match="more than 2 of 4 neighbours"):
        torch._cslt_compress(torch.ones(32, 64, dtype=torch.float16, device=GPU))


def test_semi_structured_matrices_of_cutlass():
    matrix, right, bias = semi_structured(32, 64, torch.float16), drawn(64, 8, dtype=torch.float16), drawn(32).half()
    values, positions = torch._to_sparse_semi_structured(matrix.to(GPU))
    expected = matrix.float() @ right.float()
    found = torch._sparse_semi_structured_mm(values, positions, right.to(GPU))
    assert torch.equal(found.cpu(), expected.half())
    added = torch._sparse_semi_structured_addmm(bias.to(GPU), values, positions, right.to(GPU))
    assert torch.equal(added.cpu(), (expected + bias.float()[:, None]).half())
    linear = torch._sparse_semi_structured_linear(
        right.t().contiguous().to(GPU), values, positions, bias=bias.to(GPU), activation="relu"
    )
    assert torch.allclose(linear.cpu(), (expected.t() + bias.float()).relu().half())


@pytest.mark.parametrize("tiles", [2, 4, 8])
def test_weights_of_4_bits_are_packed_in_cudas_layout(tiles):
    numbers = torch.randint(0, 16, (16, 256), generator=torch.Generator().manual_seed(tiles))
    packed = torch._convert_weight_to_int4pack((numbers[:, ::2] << 4 | numbers[:, 1::2]).to(torch.uint8).to(GPU), tiles)
    assert (packed.dtype, packed.shape) == (torch.int32, (2, 256 // (16 * tiles), 32, tiles // 2))
    row_tile, group, thread, pair = 1, 0, 13, 0
    row, columns = row_tile * 8 + thread // 4, [thread % 4 * 2 + shift for shift in (0, 8, 16, 24, 1, 9, 17, 25)]
    word = int(packed[row_tile, group, thread, pair]) & 0xFFFFFFFF
    assert [word >> shift & 15 for shift in range(0, 32, 4)] == numbers[row, columns].tolist()


def test_weights_of_4_bits_are_scaled_by_group():
    numbers = torch.randint(0, 16, (8, 64), generator=torch.Generator().manual_seed(1))
    packed = torch._convert_weight_to_int4pack((numbers[:, ::2] << 4 | numbers[:, 1::2]).to(torch.uint8).to(GPU), 2)
    scales, x = drawn(2, 8, 2, dtype=torch.bfloat16), drawn(3, 64, dtype=torch.bfloat16)
    weight = torch.cat([(numbers[:, n * 32 : n * 32 + 32] - 8) * scales[n, :, :1].float() for n in (0, 1)], 1)
    weight = (weight + scales[:, :, 1].float().t().repeat_interleave(32, 1)).to(torch.bfloat16)
    found = torch._weight_int4pack_mm(x.to(GPU), packed, 32, scales.to(GPU))
    assert torch.equal(found.cpu(), (x.float() @ weight.float().t()).to(torch.bfloat16))
    with pytest.raises(RuntimeError, match="qGroupSize must be"):
        torch._weight_int4pack_mm(x.to(GPU), packed, 16, scales.to(GPU))


def test_sync_batch_norm_writes_to_out():
    x, mean, factor = drawn(2, 3, 4).to(GPU), drawn(3).to(GPU), drawn(3).abs().to(GPU)
    into = torch.empty(0, device=GPU)
    assert aten.batch_norm_elemt.out(x, None, None, mean, factor, 1e-5, out=into) is into
    assert torch.equal(into, torch.batch_norm_elemt(x, None, None, mean, factor, 1e-5))


@pytest.mark.parametrize("other", ["cpu", "sim:0"])
def test_out_on_another_device_is_refused(other):
    x, weight, stats = drawn(2, 3, 4, 4).to(GPU), drawn(3, 1, 3, 3).to(GPU), [torch.ones(3, device=GPU)] * 2
    out, out3 = torch.zeros(2, 3, 4, 4, device=other), torch.zeros(0, dtype=torch.uint8, device=other)
    settings = [1, 1], [1, 1], [1, 1], 3
    calls = {
        "cudnn_convolution": lambda: aten.cudnn_convolution.out(x, weight, *settings, False, False, True, out=out),
        "_conv_depthwise2d": lambda: aten._conv_depthwise2d.out(
            x, weight, [3, 3], None, [1, 1], [1, 1], [1, 1], out=out
        ),
        "batch_norm_elemt": lambda: aten.batch_norm_elemt.out(x, None, None, *stats, 1e-5, out=out),
        "cudnn_batch_norm": lambda: aten.cudnn_batch_norm.out(
            x, stats[0], None, *stats, False, 0.1, 1e-5, out0=out, out1=stats[0], out2=stats[0], out3=out3
        ),
    }
    for name, call in calls.items():
        with pytest.raises(RuntimeError, match=f"Expected all tensors to be on the same device.*aten::{name}"):
            call()
    assert not out.any()
