"""Tests of operators with a tensor on a simulated GPU and a Python number, which may be out of the tensor's range.

The kernels of CUDA read such a number, unchecked, in the dtype in which they compute, as those of the CPU do.
"""

from __future__ import annotations

import math

import pytest
import torch
from simulated_torch import GPU, two_gpus_for_module  # noqa: F401 - a fixture

NUMBERS = [0, -3, 7, 300, -300, 2**40, -(2**63), True, -0.0, 0.5, 1e300, -1e300, math.inf, math.nan, 70000.0, 2j]
DTYPES = [
    *(torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64),
]
CALLS = {
    **{
        name: getattr(torch, name)
        for name in (
            *("copysign", "remainder", "fmod", "floor_divide", "div", "add", "mul", "pow", "xlogy", "lt", "eq"),
            *("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift"),
        )
    },
    **{name: getattr(torch.special, name) for name in ("xlog1py", "zeta", "hermite_polynomial_h")},
    "copysign_": lambda x, number: x.clone().copysign_(number),
    "remainder_": lambda x, number: x.clone().remainder_(number),
    "bitwise_and_": lambda x, number: x.clone().bitwise_and_(number),
    "number first": lambda x, number: torch.remainder(number, x),
    "shifted number": lambda x, number: torch.bitwise_left_shift(number, x),
    "out": lambda x, number: torch.fmod(x, number, out=torch.empty(0, dtype=x.dtype, device=x.device)),
}


def outcome(call, x, number):
    """Return the result on the host, or the text of the error."""
    try:
        return call(x, number)
    except (RuntimeError, TypeError) as error:
        return str(error).split(" but got ")[0]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_a_number_means_what_it_means_on_the_host(name, dtype):
    x = torch.tensor([0, 1, 100, 3]).to(dtype)
    card = x.to(GPU)
    for number in NUMBERS:
        expected, found = outcome(CALLS[name], x, number), outcome(CALLS[name], card, number)
        if isinstance(expected, str):
            assert isinstance(found, str), number
            continue
        assert (str(found.device), found.dtype) == (GPU, expected.dtype)
        assert torch.equal(found.cpu().view(torch.uint8), expected.view(torch.uint8)), number


def test_a_gradient_flows_past_a_number_out_of_range():
    for number in (1e300, -1e300):
        x = torch.tensor([0.5, 2.0], device=GPU, requires_grad=True)
        torch.copysign(x, number).sum().backward()
        assert x.grad.tolist() == [math.copysign(1, number)] * 2
