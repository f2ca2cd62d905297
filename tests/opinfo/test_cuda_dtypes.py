"""Tests of operators that CUDA supports in a dtype and the CPU does not: every such pair in the database of PyTorch.

A sample is drawn in that dtype on a simulated GPU and computed forward and backward there. If the host can compute it
in the same dtype after all, the bits are compared; otherwise the host computes in a wider dtype and rounds to the first
one.
"""

from __future__ import annotations

import builtins
import sys
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_map

import devshim as ds

sys.path.insert(0, str(Path(__file__).parent))

from compare import tensors

WIDE = {
    torch.complex32: torch.complex64,
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.bool: torch.uint8,
}
EXCLUDED = {
    "torch_ops_aten__flash_attention_forward": "a private entry to CUDA's attention kernels",
    "torch_ops_aten__efficient_attention_forward": "a private entry to CUDA's attention kernels",
    "nn_functional_rrelu": "it draws: the samples of two dtypes get different numbers",
}
"""Operators that cannot be compared here, and why."""
NO_GRADIENT = {
    "prod": "CUDA has no cumprod of complex32, which its gradient needs",
    **dict.fromkeys(("logaddexp", "pow"), "steps of its gradient overflow in complex32, as they do on CUDA"),
}
"""Operators whose gradients are not compared, and why."""

PAIRS = [
    pytest.param(operator, dtype, id=f"{operator.formatted_name}-{str(dtype).removeprefix('torch.')}")
    for operator in op_db
    for dtype in sorted(set(operator.dtypesIfCUDA or ()) - set(operator.dtypes or ()), key=str)
    if operator.formatted_name not in EXCLUDED
]

pytestmark = [
    pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental"),
    pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths"),
]


@pytest.fixture(autouse=True)
def gpus():
    ds.use("torch")
    with ds.simulate(gpus=2):
        yield


class Host:
    """A sample on the host: in its own dtype, or in a wider one if the host has no kernel for it.

    Attributes:
        wide: The wider dtype, or None for the sample's own.
        leaves: The arguments that require gradients.
        exact: True if the GPU must give the same bits.
        result: The operator's result.
    """

    def __init__(self, operator, dtype, sample):
        self.dtype = dtype
        for self.wide in (None, WIDE.get(dtype)):
            on_host = [tree_map(self.to_host, each) for each in (sample.input, sample.args, sample.kwargs)]
            self.leaves = [x for x in tensors(on_host) if x.requires_grad]
            try:
                self.exact = self.wide is None and operator.name not in FORMULAS
                self.result = FORMULAS.get(operator.name, operator)(on_host[0], *on_host[1], **on_host[2])
                return
            except RuntimeError:
                if self.wide is not None:
                    raise

    def to_host(self, value):
        if not isinstance(value, torch.Tensor):
            return self.wide if self.wide is not None and value is self.dtype else value
        seen = value.detach().cpu()
        seen = seen.to(self.wide) if self.wide is not None and value.dtype is self.dtype else seen
        return seen.requires_grad_(value.requires_grad)


def histogram(x, bins=100, min=0, max=0):
    """Count integers in bins, in Python: `torch.histc` on the CPU lacks integers."""
    if min == max:
        min, max = int(x.min()), int(x.max())
    if min == max:
        min, max = min - 1, max + 1
    counts = [0] * bins
    for value in x.flatten().tolist():
        if min <= value <= max:
            counts[builtins.min((value - min) * bins // (max - min), bins - 1)] += 1
    return torch.tensor(counts, dtype=x.dtype)


def by_numpy(function):
    def operator(x, dim=None, keepdim=False, dtype=None):
        wide = x.detach().to(torch.complex64) if x.dtype is torch.complex32 else x.detach()
        axis = tuple(dim) or None if isinstance(dim, (list, tuple)) else dim  # an empty one means all
        with np.errstate(invalid="ignore"):
            found = function(wide.numpy(), axis=axis, keepdims=keepdim)
        return torch.from_numpy(np.asarray(found)).to(dtype or x.dtype)

    return operator


FORMULAS = {"histc": histogram, "nansum": by_numpy(np.nansum), "nanmean": by_numpy(np.nanmean)}
"""Operators that the host does not have in a wider dtype either."""


def require_alike(gpu, host, exact, what):
    for one, other in zip(tensors(gpu), tensors(host), strict=True):
        assert one.device == torch.device("sim", 0), what
        seen, other = one.detach().cpu(), other.detach()
        other = other.to(seen.dtype)  # large numbers overflow in both
        half = seen.dtype in WIDE
        if half:
            seen, other = seen.to(WIDE[seen.dtype]), other.to(WIDE[seen.dtype])
        tolerance = 0 if exact else 2e-2 if half else 1e-6
        torch.testing.assert_close(seen, other, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize(("operator", "dtype"), PAIRS)
def test_operators_are_computed_as_cuda_computes_them(operator, dtype):
    grad = operator.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
    compared = 0
    torch.manual_seed(20)
    for sample in islice(operator.sample_inputs("sim:0", dtype, requires_grad=grad), 20):
        host = Host(operator, dtype, sample)
        on_gpu = operator(sample.input, *sample.args, **sample.kwargs)
        require_alike(on_gpu, host.result, host.exact, f"{operator.name}, sample {compared}")
        compared += 1
        if operator.name in FORMULAS or operator.name in NO_GRADIENT:
            continue
        leaves = [x for x in tensors([sample.input, sample.args, sample.kwargs]) if x.requires_grad]
        results = [x for x in tensors(on_gpu) if x.requires_grad]
        if leaves and results:
            host_results = [x for x in tensors(host.result) if x.requires_grad]
            expected = gradients(host_results, host.leaves)
            require_alike(gradients(results, leaves), expected, host.exact, f"backward of {operator.name}")
    assert compared


def gradients(results, leaves):
    found = torch.autograd.grad(results, leaves, [torch.ones_like(x) for x in results], allow_unused=True)
    return [x for x in found if x is not None]


def test_every_excluded_operator_exists():
    assert {operator.formatted_name for operator in op_db} >= {*EXCLUDED, *NO_GRADIENT}
