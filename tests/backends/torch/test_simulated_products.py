"""Tests of products with ``out_dtype=`` on simulated GPUs, which PyTorch has for CUDA and not for the CPU."""

from __future__ import annotations

import pytest
import torch
from simulated_torch import GPU, is_on_gpu, two_gpus_for_module  # noqa: F401 - a fixture
from torch.nn import functional as F

HALVES = [torch.float16, torch.bfloat16]

pytestmark = pytest.mark.skipif(
    not torch._C._dispatch_has_kernel("aten::addmm.dtype"), reason="this PyTorch has no out_dtype="
)


def drawn(*shape, dtype):
    """Return drawn numbers as a host tensor."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


@pytest.mark.parametrize("dtype", HALVES)
def test_halves_are_multiplied_exactly_and_summed_in_float32(dtype):
    a, b = drawn(3, 40, dtype=dtype), drawn(40, 5, dtype=dtype)
    found = torch.mm(a.to(GPU), b.to(GPU), out_dtype=torch.float32)
    assert (found.dtype, is_on_gpu(found)) == (torch.float32, True)
    assert torch.equal(found.cpu(), a.float() @ b.float())
    batches = torch.bmm(a.to(GPU)[None], b.to(GPU)[None], out_dtype=torch.float32)
    assert torch.equal(batches[0], found)


@pytest.mark.parametrize("term_dtype", [torch.float32, torch.bfloat16])
def test_a_term_may_have_the_dtype_of_the_result_or_of_the_factors(term_dtype):
    a, b, c = (drawn(*shape, dtype=torch.bfloat16) for shape in ((3, 4), (4, 5), (5,)))
    expected = torch.addmm(c.float(), a.float(), b.float(), beta=2, alpha=3)
    term, factors = c.to(GPU, term_dtype), (a.to(GPU), b.to(GPU))
    found = torch.addmm(term, *factors, out_dtype=torch.float32, beta=2, alpha=3)
    assert torch.equal(found.cpu(), expected)
    batched = torch.baddbmm(term, *(each[None] for each in factors), out_dtype=torch.float32, beta=2, alpha=3)
    assert (batched.dtype, batched.shape) == (torch.float32, (1, 3, 5))
    assert torch.allclose(batched[0].cpu(), expected)


def test_the_result_is_added_to_out():
    total, a = torch.ones(2, 2, device=GPU), torch.full((2, 2), 3.0, dtype=torch.bfloat16, device=GPU)
    assert torch.addmm(total, a, a, out_dtype=torch.float32, out=total) is total
    assert total.tolist() == [[19.0, 19.0]] * 2
    into = torch.empty(0, device=GPU)
    assert torch.mm(a, a, out_dtype=torch.float32, out=into) is into
    assert into.shape == (2, 2)


def test_a_term_times_zero_is_not_read():
    a = torch.ones(2, 2, dtype=torch.float16, device=GPU)
    unread = torch.full((2, 2), float("nan"), device=GPU)
    assert torch.addmm(unread, a, a, out_dtype=torch.float32, beta=0).tolist() == [[2.0, 2.0]] * 2
    assert torch.baddbmm(unread[None], a[None], a[None], out_dtype=torch.float32, beta=0).tolist() == [[[2.0, 2.0]] * 2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_dtype_of_the_factors_is_allowed(dtype):
    x = drawn(3, 3, dtype=dtype)
    assert torch.equal(torch.mm(x.to(GPU), x.to(GPU), out_dtype=dtype).cpu(), x @ x)


def refused(words):
    """Expect an error with these words."""
    return pytest.raises(RuntimeError, match=words)


def test_other_combinations_are_refused_as_on_cuda():
    half, single = torch.ones(2, 2, dtype=torch.float16, device=GPU), torch.ones(2, 2, device=GPU)
    combination = "out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs"
    for x, dtype in ((single, torch.float16), (half, torch.float64), (half, torch.bfloat16)):
        with refused(combination):
            torch.mm(x, x, out_dtype=dtype)
        with refused(combination):
            torch.baddbmm(x[None], x[None], x[None], out_dtype=dtype)
    with refused("input dtypes must be the same"):
        torch.mm(half, half.bfloat16(), out_dtype=torch.float32)
    with refused("mat1 and mat2 must have the same dtype, but got Half and BFloat16"):
        torch.addmm(single, half, half.bfloat16(), out_dtype=torch.float32)
    with refused("self dtype must match either out_dtype or mat1 dtype"):
        torch.addmm(single.double(), half, half, out_dtype=torch.float32)
    with refused("out_dtype must be the same as the dtype of the provided out tensor"):
        torch.mm(half, half, out_dtype=torch.float32, out=single.double())
    with refused("\"addmm_cuda\" not implemented for 'Long'"):
        torch.mm(single.long(), single.long(), out_dtype=torch.int64)


def test_shapes_and_devices_are_checked():
    half = torch.ones(2, 3, dtype=torch.float16, device=GPU)
    with refused(r"mat1 and mat2 shapes cannot be multiplied \(2x3 and 2x3\)"):
        torch.mm(half, half, out_dtype=torch.float32)
    with refused("self must be a matrix, got 3-D tensor"):
        torch.mm(half[None], half, out_dtype=torch.float32)
    with refused(r"batch2 tensor to be: \[1, 3\] but got: \[1, 2\]"):
        torch.bmm(half[None], half[None], out_dtype=torch.float32)
    with refused("Expected all tensors to be on the same device"):
        torch.mm(half, half.t().cpu(), out_dtype=torch.float32)


OUT = {
    "mm": lambda a, **out: torch.mm(a, a, out_dtype=torch.float32, **out),
    "addmm": lambda a, **out: torch.addmm(a, a, a, out_dtype=torch.float32, **out),
    "bmm": lambda a, **out: torch.bmm(a[None], a[None], out_dtype=torch.float32, **out),
    "baddbmm": lambda a, **out: torch.baddbmm(a[None], a[None], a[None], out_dtype=torch.float32, **out),
}


@pytest.mark.parametrize("name", OUT)
@pytest.mark.parametrize(("on", "to"), [(GPU, "cpu"), (GPU, "sim:0"), ("cpu", GPU)])
def test_out_on_another_device_is_refused_as_by_other_operators(name, on, to):
    a = torch.ones(2, 2, dtype=torch.float16, device=on)
    out = torch.zeros(2, 2, device=to) if "b" not in name else torch.zeros(1, 2, 2, device=to)
    found = r"found at least two devices, gpu:1 \(simulated\) and " + ("gpu:0" if to == "sim:0" else "cpu")
    with refused(f"Expected all tensors to be on the same device, but {found}.*aten::{name}"):
        OUT[name](a, out=out)
    assert not out.any()


def test_pytorch_has_no_gradient_and_autocast_no_rule():
    x = torch.ones(2, 2, dtype=torch.bfloat16, device=GPU, requires_grad=True)
    with refused("derivative for aten::mm is not implemented"):
        torch.mm(x, x, out_dtype=torch.float32).sum().backward()
    single = x.detach().float()
    with torch.autocast("sim", dtype=torch.bfloat16):
        assert torch.mm(single, single, out_dtype=torch.float32).dtype is torch.float32


@pytest.mark.parametrize(
    ("rows", "inner", "columns", "words"),
    [
        (16, 8, 8, r"self.size\(0\) needs to be greater than 16, but got 16"),
        (17, 7, 8, r"self.size\(1\) needs to be greater than 0 and a multiple of 8, but got 7"),
        (17, 0, 8, r"self.size\(1\) needs to be greater than 0 and a multiple of 8, but got 0"),
        (17, 8, 12, r"mat2.size\(1\) needs to be greater than 0 and a multiple of 8, but got 12"),
    ],
)
def test_sizes_that_cublas_refuses_for_integers_are_refused(rows, inner, columns, words):
    a, b = (torch.ones(*shape, dtype=torch.int8) for shape in ((rows, inner), (inner, columns)))
    torch._int_mm(a, b)
    with refused(words):
        torch._int_mm(a.to(GPU), b.to(GPU))
    with refused(words):
        torch._int_mm(a.to(GPU), b.to(GPU), out=torch.empty(rows, columns, dtype=torch.int32, device=GPU))


def test_only_matrices_of_int8_are_multiplied_as_integers():
    a, b = torch.full((17, 8), -3, dtype=torch.int8, device=GPU), torch.full((8, 16), 2, dtype=torch.int8, device=GPU)
    found, out = torch._int_mm(a, b), torch.empty(17, 16, dtype=torch.int32, device=GPU)
    assert (found.dtype, is_on_gpu(found), found.unique().tolist()) == (torch.int32, True, [-48])
    assert torch._int_mm(a, b, out=out) is out
    assert torch.equal(out, found)
    with refused("expected scalar type Char but found Byte"):
        torch._int_mm(a.to(torch.uint8), b)
    with refused("expected scalar type Char but found Float"):
        torch._int_mm(a, b.float())
    with refused(r"self.size\(1\) needs to match mat2.size\(0\) but got 8 and 16"):
        torch._int_mm(a, b.t())
    with refused("Expected mat2 to be of dimension 2 but got 3"):
        torch._int_mm(a, b[None])


def scaled(a, b):
    """Multiply matrices with both operators for float8."""
    one = torch.ones((), device=a.device)
    yield lambda: torch._scaled_mm(a, b, one, one, out_dtype=torch.float32)
    if hasattr(F, "scaled_mm"):
        whole = F.ScalingType.TensorWise
        yield lambda: F.scaled_mm(a, b, one, whole, one, whole, output_dtype=torch.float32)


def float8(*shape, dtype=torch.float8_e4m3fn):
    """Return a matrix of ones."""
    return torch.ones(*shape, device=GPU).to(dtype)


def test_matrices_of_float8_with_scales_are_multiplied_in_the_layout_of_cublas():
    for multiply in scaled(float8(3, 16), float8(32, 16).t()):
        assert torch.equal(multiply(), torch.full((3, 32), 16.0, device=GPU))
    for a, b in ((float8(3, 16), float8(16, 32)), (float8(16, 3).t(), float8(32, 16).t())):
        for multiply in scaled(a, b):
            with refused("Only multiplication of row-major and column-major matrices is supported by cuBLASLt"):
                multiply()


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        ((3, 8), (16, 8), r"Expected trailing dimension of mat1 to be divisible by 16 but got mat1 shape: \(3x8\)"),
        ((3, 16), (24, 16), r"mat2 shape \(16x24\) must be divisible by 16"),
        ((1, 3, 16), (16, 16), "(mat1|mat_a) must be a matrix"),
    ],
)
def test_sizes_of_float8_that_cublas_refuses_are_refused(a, b, words):
    for multiply in scaled(float8(*a), float8(*b).t()):
        with pytest.raises((RuntimeError, ValueError), match=words):
            multiply()


def test_two_matrices_of_the_wide_float8_are_refused():
    a = float8(16, 16, dtype=torch.float8_e5m2)
    for multiply in scaled(a, a.t()):
        with pytest.raises(ValueError, match="Multiplication of two Float8_e5m2 matrices is not supported"):
            multiply()
