"""Tests of operators on simulated GPUs in dtypes that CUDA has and the CPU lacks, and of learning rates on the host."""

from __future__ import annotations

import copy

import pytest
import torch
from simulated_torch import GPU, two_gpus_for_module  # noqa: F401 - a fixture

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu]

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")


def same_bits(card, host):
    """Compare bit for bit, also complex32, which PyTorch cannot compare."""
    card = card.detach().cpu()
    if card.dtype.is_complex:
        card, host = torch.view_as_real(card), torch.view_as_real(host)
    return torch.equal(card, host)


def counted(values, bins, low, high):
    """Count whole numbers in bins, with Python's own arithmetic; the last bin includes both ends."""
    counts = [0] * bins
    for value in values:
        if low <= value <= high:
            counts[min((value - low) * bins // (high - low), bins - 1)] += 1
    return counts


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize(("bins", "low", "high"), [(4, 0, 3), (10, 0, 10), (100, 1, 50), (1, 7, 9)])
def test_integers_are_counted_in_bins(dtype, bins, low, high):
    host = torch.randint(0, 60, (4, 25), generator=torch.Generator().manual_seed(3)).to(dtype)
    found = torch.histc(host.to(GPU), bins=bins, min=low, max=high)
    assert (found.dtype, str(found.device)) == (dtype, GPU)
    assert found.tolist() == counted(host.flatten().tolist(), bins, low, high)


def test_bins_without_a_range_use_the_range_of_the_data():
    x = torch.tensor([-3, 4, 4, 11], device=GPU)
    assert torch.histc(x, bins=7).tolist() == counted([-3, 4, 4, 11], 7, -3, 11)
    assert torch.histc(torch.full((5,), 2, device=GPU), bins=2).tolist() == [0, 5]
    assert torch.histc(torch.zeros(0, dtype=torch.int64, device=GPU), bins=2).tolist() == [0, 0]
    with pytest.raises(RuntimeError, match="max must be larger than min"):
        torch.histc(x, bins=2, min=3, max=1)


def test_counts_beyond_double_precision_are_exact():
    x = torch.tensor([2**60, 2**60 + 1, 2**60 + 3], device=GPU)
    assert torch.histc(x, bins=4, min=2**60, max=2**60 + 4).tolist() == [1, 1, 0, 1]


def test_results_are_written_to_out():
    x, out = torch.tensor([0, 1, 1], device=GPU), torch.zeros(0, dtype=torch.int64, device=GPU)
    assert torch.histc(x, bins=2, out=out) is out
    assert out.tolist() == [1, 2]
    z = torch.tensor([1 + 2j, 0.5j], dtype=torch.complex32, device=GPU)
    into = torch.empty_like(z)
    assert torch.exp(z, out=into) is into
    assert same_bits(into, torch.exp(z.cpu().to(torch.complex64)).to(torch.complex32))


def test_complex32_is_computed_and_written_in_place():
    z = torch.tensor([0.5 + 1j, -1j], dtype=torch.complex32, device=GPU)
    before = z.cpu()
    assert z.cos_() is z
    assert same_bits(z, before.to(torch.complex64).cos().to(torch.complex32))
    assert z.angle().dtype is torch.float16
    assert z.sum(dtype=torch.complex64).dtype is torch.complex64
    assert z.sum().dtype is torch.complex32


def test_a_trace_of_bool_and_of_complex32():
    assert torch.eye(3, dtype=torch.bool, device=GPU).trace().tolist() == 3
    assert torch.eye(3, device=GPU).to(torch.complex32).trace().item() == 3
    assert torch.tensor([True, False], device=GPU).abs().tolist() == [True, False]


def test_a_complex_number_is_nan_if_a_part_is_nan():
    x = torch.tensor([[1 + 1j, complex(float("nan"), 2)], [complex(3, float("nan")), 4]], device=GPU)
    assert torch.nansum(x).item() == 5 + 1j
    assert torch.nansum(x, dim=0, keepdim=True).tolist() == [[1 + 1j, 4]]
    assert torch.nanmean(x).item() == 2.5 + 0.5j


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_pooling_in_half_precision_with_its_gradient(dtype):
    x = torch.arange(64.0, dtype=dtype).reshape(1, 1, 4, 4, 4)
    there = x.to(GPU).requires_grad_()
    torch.nn.functional.avg_pool3d(there, 2).sum().backward()
    wide = x.float().requires_grad_()
    torch.nn.functional.avg_pool3d(wide, 2).sum().backward()
    assert torch.equal(there.grad.cpu(), wide.grad.to(dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.complex32])
def test_fourier_transforms_in_half_precision(dtype):
    x = torch.arange(8.0).to(dtype)
    there = x.to(GPU).requires_grad_()
    result = torch.fft.fft(there)
    wide = torch.fft.fft(x.to(torch.complex64 if dtype.is_complex else torch.float32))
    assert (result.dtype, str(result.device)) == (torch.complex32, GPU)
    assert same_bits(result, wide.to(torch.complex32))
    result.abs().float().sum().backward()
    assert there.grad.dtype is dtype
    with torch.inference_mode():
        assert same_bits(torch.fft.fft(x.to(GPU)), wide.to(torch.complex32))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("fft", {"n": 3}),
        ("rfft", {"n": 6}),
        ("irfft", {"n": 6}),
        ("ihfft", {"n": 5}),
        ("fftn", {"s": (4, 3)}),
        ("rfft2", {"s": (3, 4)}),
        ("fft2", {"dim": (0, 1)}),
    ],
)
def test_sizes_that_cufft_refuses_in_half_precision_are_refused(name, options):
    x = torch.ones((3, 4, 8) if "dim" in options else (4, 8), dtype=torch.float16, device=GPU)
    with pytest.raises(RuntimeError, match="powers of two"):
        getattr(torch.fft, name)(x, **options)
    getattr(torch.fft, name)(x.float(), **options)


def test_a_dtype_that_neither_supports_is_refused():
    with pytest.raises(RuntimeError, match="Half"):
        torch.linalg.inv(torch.eye(2, dtype=torch.float16, device=GPU))
    with pytest.raises(RuntimeError, match="same device"):
        torch.pow(torch.ones(2, dtype=torch.complex32, device=GPU), torch.ones(2, dtype=torch.complex32))


FUSED = [
    (torch.optim.SGD, {"momentum": 0.9}),
    (torch.optim.SGD, {}),
    (torch.optim.Adagrad, {}),
    (torch.optim.Adam, {"amsgrad": True}),
    (torch.optim.AdamW, {}),
]


@pytest.mark.parametrize(("kind", "options"), FUSED)
@pytest.mark.parametrize("shape", [(), (1,)])
def test_fused_optimizers_read_a_learning_rate_from_the_host(kind, options, shape):
    def train(device):
        weight = torch.nn.Parameter(torch.arange(5.0, device=device))
        optimizer = kind([weight], lr=torch.full(shape, 0.1), fused=True, **copy.deepcopy(options))
        for _ in range(3):
            optimizer.zero_grad()
            (weight**2).sum().backward()
            optimizer.step()
        return weight.detach().cpu()

    assert torch.equal(train(GPU), train("cpu"))


def test_a_fused_optimizer_refuses_other_host_tensors():
    weight = torch.nn.Parameter(torch.ones(3, device=GPU))
    weight.grad = torch.ones(3, device=GPU)
    steps, host = [torch.ones((), device=GPU)], torch.tensor(1.0)
    options = {"lr": host, "lr_decay": 0.0, "weight_decay": 0.0, "eps": 1e-8, "maximize": False}
    with pytest.raises(RuntimeError, match="same device"):
        torch._fused_adagrad_(
            [weight.detach()], [weight.grad], [torch.ones(3, device=GPU)], steps, found_inf=host, **options
        )


PRODUCTS = {
    "mm": (lambda a: a @ a, "addmm_cuda"),
    "mm, out=": (lambda a: torch.mm(a, a, out=torch.empty_like(a)), "addmm_cuda"),
    "addmm_": (lambda a: a.clone().addmm_(a, a), "addmm_cuda"),
    "addbmm": (lambda a: torch.addbmm(a, a[None], a[None]), "addmm_cuda"),
    "addbmm_": (lambda a: a.clone().addbmm_(a[None], a[None]), "addmm_cuda"),
    "linear": (lambda a: torch.nn.functional.linear(a, a), "addmm_cuda"),
    "bmm": (lambda a: torch.bmm(a[None], a[None]), "baddbmm_cuda"),
    "einsum": (lambda a: torch.einsum("ij,jk", a, a), "baddbmm_cuda"),
    "mv": (lambda a: a @ a[0], "addmv_impl_cuda"),
    "dot": (lambda a: torch.dot(a[0], a[0]), "dot"),
    "vdot": (lambda a: torch.vdot(a[0], a[0]), "vdot"),
    "max_pool2d": (lambda a: torch.nn.functional.max_pool2d(a[None], 1), "max_pool2d_with_indices_out_cuda_frame"),
}
"""Operators that the CPU computes for integers and CUDA does not, with the kernel that CUDA's error names."""


@pytest.mark.parametrize(("dtype", "shown"), list(zip(INTEGERS, ["Byte", "Char", "Short", "Int", "Long"], strict=True)))
@pytest.mark.parametrize("form", PRODUCTS)
def test_operators_that_cuda_lacks_for_integers_are_refused(form, dtype, shown):
    function, kernel = PRODUCTS[form]
    with pytest.raises(NotImplementedError, match=f"\"{kernel}\" not implemented for '{shown}'"):
        function(torch.ones(2, 2, dtype=dtype, device=GPU))
    function(torch.ones(2, 2, dtype=dtype))
    function(torch.ones(2, 2, device=GPU))


PRODUCTS_OF_ELEMENTS = {
    "mul": (lambda a: a * a, "mul_cuda"),
    "mul, number": (lambda a: a * 2, "mul_cuda"),
    "mul, number first": (lambda a: torch.mul(2, a), "mul_cuda"),
    "mul, out=": (lambda a: torch.mul(a, a, out=torch.empty_like(a)), "mul_cuda"),
    "mul_": (lambda a: a.clone().mul_(a), "mul_cuda"),
    "outer": (lambda a: torch.outer(a[0], a[0]), "mul_cuda"),
    "attention": (lambda a: torch.nn.functional.scaled_dot_product_attention(*[a[None, None]] * 3), "mul_cuda"),
    "abs": (lambda a: a.abs(), "abs_cuda"),
    "abs_": (lambda a: a.clone().abs_(), "abs_cuda"),
    "isinf": (lambda a: a.isinf(), "abs_cuda"),
    "avg_pool2d": (lambda a: torch.nn.functional.avg_pool2d(a[None], 1), "avg_pool2d_out_cuda_frame"),
    "_foreach_mul": (lambda a: torch._foreach_mul([a], [a]), "foreach_binary_op_list_cuda"),
    "_foreach_mul_": (lambda a: torch._foreach_mul_([a.clone()], [a]), "foreach_binary_op_list_cuda_"),
    "_foreach_mul, number": (lambda a: torch._foreach_mul([a], 2), "foreach_binary_op_scalar_cuda"),
    "_foreach_mul_, numbers": (lambda a: torch._foreach_mul_([a.clone()], [2.0]), "foreach_binary_op_scalarlist_cuda_"),
    "_foreach_mul, tensor": (lambda a: torch._foreach_mul([a], a[0, 0]), "foreach_binary_op_scalar_cuda"),
    "_foreach_abs": (lambda a: torch._foreach_abs([a]), "foreach_unary_op_cuda"),
    "_foreach_abs_": (lambda a: torch._foreach_abs_([a.clone()]), "foreach_unary_op_cuda_"),
    "_foreach_zero_": (lambda a: torch._foreach_zero_([a.clone()]), "foreach_zero_cuda_"),
}


@pytest.mark.parametrize("dtype", FLOAT8)
@pytest.mark.parametrize("form", [*PRODUCTS, *PRODUCTS_OF_ELEMENTS])
def test_operators_that_cuda_lacks_for_float8_are_refused(form, dtype):
    function, kernel = (PRODUCTS | PRODUCTS_OF_ELEMENTS)[form]
    shown = str(dtype).removeprefix("torch.").capitalize()
    with pytest.raises(NotImplementedError, match=f"\"{kernel}\" not implemented for '{shown}'"):
        function(torch.ones(2, 2, device=GPU).to(dtype))
    function(torch.ones(2, 2, device=GPU))


@pytest.mark.parametrize("dtype", FLOAT8)
def test_float8_is_copied_compared_and_indexed_as_on_cuda(dtype):
    x = torch.tensor([[1.0, 2.0], [4.0, 8.0]], device=GPU).to(dtype)
    for found in (x.clone(), x.cpu(), torch.cat([x[:1], x[1:]]), x.t().contiguous().t(), torch.where(x == x, x, x)):
        assert found.float().tolist() == [[1.0, 2.0], [4.0, 8.0]]
    assert (x != x).tolist() == [[False, False]] * 2
    assert x[1].float().tolist() == [4.0, 8.0]
    assert x.fill_(2).float().tolist() == [[2.0, 2.0]] * 2
    with pytest.raises(RuntimeError, match=r"getCudnnDataTypeFromScalarType\(\) not supported for Float8_e"):
        torch.nn.functional.conv2d(x[None, None], x[None, None])


def test_images_of_bytes_and_convolutions_of_integers_are_refused():
    image = torch.ones(1, 1, 2, 2, dtype=torch.uint8, device=GPU)
    with pytest.raises(NotImplementedError, match="upsample_bilinear2d_out_frame"):
        torch.nn.functional.interpolate(image, scale_factor=2, mode="bilinear")
    with pytest.raises(RuntimeError, match=r"getCudnnDataTypeFromScalarType\(\) not supported for Long"):
        torch.nn.functional.conv2d(image.long(), image.long())


def test_a_product_without_elements_needs_no_kernel():
    a = torch.ones(2, 2, dtype=torch.int64, device=GPU)
    assert (a[:0] @ a).shape == (0, 2)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.histogram(x, 2),
        lambda x: x.histogram(torch.tensor([0.0, 1.0, 2.0], device=x.device)),
        lambda x: torch.histogramdd(x.view(2, 2), [2, 2]),
        lambda x: x.to_mkldnn(),
        lambda x: torch.sparse.spdiags(x.view(1, 4), torch.tensor([0]), (4, 4)),
        lambda x: torch.sparse.mm(x.view(2, 2).to_sparse_csr(), x.view(2, 2), "sum"),
    ],
)
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_operators_that_cuda_does_not_have_are_refused(call):
    x = torch.ones(4)
    call(x)
    with pytest.raises(
        NotImplementedError, match=r"Could not run 'aten::.*CUDA' backend[^\n]*\n\nHint: compute it on the CPU"
    ):
        call(x.to(GPU))
