"""Tests of factors of matrices without exchanged rows, which PyTorch computes only on GPUs."""

from __future__ import annotations

import pytest
import torch
from simulated_torch import GPU, is_on_gpu, two_gpus_for_module  # noqa: F401 - a fixture

pytestmark = [pytest.mark.filterwarnings(f"ignore:{text} is deprecated") for text in ("`torch.jit.script`", "torch.lu")]

SHAPES = ((3, 3), (2, 4, 3), (2, 3, 5), (2, 2, 1, 1), (2, 0, 3), (3, 0), (0, 2, 2))
DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)


def drawn(shape, dtype=torch.float64):
    """Return matrices that have factors without exchanged rows."""
    x = torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(sum(shape)))
    return (x + 4 * torch.eye(*shape[-2:], dtype=dtype)).to(GPU)


def layouts(results):
    return [(each.shape, each.stride(), each.dtype) for each in results]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_factors(shape, dtype):
    x = drawn(shape, dtype)
    permutation, lower, upper = split = torch.linalg.lu(x, pivot=False)
    assert permutation.shape == (0,)
    torch.testing.assert_close(lower @ upper, x)
    assert torch.equal(lower.tril(), lower)
    assert torch.equal(upper.triu(), upper)
    both, pivots, info = factored = torch.linalg.lu_factor_ex(x, pivot=False)
    assert not info.any()
    assert all(map(is_on_gpu, (*split, *factored)))
    assert layouts(split) == layouts(torch.linalg.lu(x.to("meta"), pivot=False))
    assert layouts(factored) == layouts(torch.linalg.lu_factor_ex(x.to("meta"), pivot=False))
    assert torch.equal(pivots, torch.arange(1, min(shape[-2:]) + 1, device=GPU).expand(pivots.shape))
    for same in (torch.linalg.lu_factor(x, pivot=False), torch.lu(x, pivot=False)):
        assert torch.equal(same[0], both)
    parts = torch.lu_unpack(both, pivots)
    torch.testing.assert_close(parts[0] @ parts[1] @ parts[2], x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
@pytest.mark.parametrize("shape", SHAPES[:3], ids=str)
def test_gradients(shape, dtype):
    x = drawn(shape, dtype).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: torch.linalg.lu(x, pivot=False)[1:], x, check_forward_ad=True)
    assert torch.autograd.gradcheck(lambda x: torch.linalg.lu_factor(x, pivot=False)[0], x, check_forward_ad=True)


def test_they_solve_equations():
    x, right = drawn((2, 3, 3)), drawn((2, 3, 2))
    solved = torch.linalg.lu_solve(*torch.linalg.lu_factor(x, pivot=False), right)
    torch.testing.assert_close(x @ solved, right)


def test_a_zero_on_the_diagonal():
    x = torch.tensor([[[1.0, 2], [2, 4]], [[0, 1], [1, 0]], [[1, 0], [0, 1]]], device=GPU)
    assert torch.linalg.lu_factor_ex(x, pivot=False).info.tolist() == [2, 1, 0]
    with pytest.raises(RuntimeError, match=r"linalg.lu_factor: \(Batch element 0\): U\[2,2\] is zero"):
        torch.linalg.lu_factor(x, pivot=False)
    with pytest.raises(RuntimeError, match=r"linalg.lu_factor_ex: U\[1,1\] is zero"):
        torch.linalg.lu_factor_ex(x[1], pivot=False, check_errors=True)


def test_results_that_the_program_provides():
    x = drawn((3, 3))
    out = [torch.empty(0, dtype=x.dtype, device=GPU) for _ in range(3)]
    assert torch.linalg.lu(x, pivot=False, out=out)[1] is out[1]
    assert out[0].shape == (0,)
    torch.testing.assert_close(out[1] @ out[2], x)
    out[1:] = [torch.empty(0, dtype=torch.int32, device=GPU) for _ in range(2)]
    torch.linalg.lu_factor_ex(x, pivot=False, out=out)
    for found, expected in zip(out, torch.linalg.lu_factor_ex(x, pivot=False), strict=True):
        assert torch.equal(found, expected)
    with pytest.raises(RuntimeError, match="Expected out tensor to have dtype"):
        torch.linalg.lu(x, pivot=False, out=[torch.empty(0, dtype=torch.int32, device=GPU) for _ in range(3)])


@pytest.mark.parametrize(
    ("x", "error"),
    [
        (torch.ones(2, 2, dtype=torch.half), "not implemented for 'Half'"),
        (torch.ones(2, 2, dtype=torch.int), "not implemented for 'Int'"),
        (torch.ones(2), "Expected tensor with 2 or more dimensions"),
    ],
    ids=["float16", "int32", "a vector"],
)
def test_what_cuda_refuses(x, error):
    with pytest.raises(RuntimeError, match=error):
        torch.linalg.lu(x.to(GPU), pivot=False)
