"""Tests of creating tensors on simulated GPUs in PyTorch: every function and every dtype."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from simulated_torch import GPU, is_on_gpu, two_gpus_for_module  # noqa: F401 - a fixture

MAKERS = {
    "zeros": lambda d: torch.zeros(2, 3, device=d),
    "ones": lambda d: torch.ones((2, 3), device=d, dtype=torch.float64),
    "full": lambda d: torch.full((2,), 7, device=d),
    "arange": lambda d: torch.arange(1, 9, 3, device=d),
    "linspace": lambda d: torch.linspace(0, 1, 5, device=d),
    "logspace": lambda d: torch.logspace(0, 1, 5, device=d),
    "eye": lambda d: torch.eye(3, device=d),
    "tensor": lambda d: torch.tensor([[1.0, 2.0], [3.0, 4.0]], device=d),
    "a number": lambda d: torch.tensor(3, device=d),
    "nothing": lambda d: torch.tensor([], device=d),
    "scalar_tensor": lambda d: torch.scalar_tensor(2.5, device=d),
    "as_tensor of a list": lambda d: torch.as_tensor([1, 2], device=d),
    "as_tensor of an array": lambda d: torch.as_tensor(np.arange(3.0), device=d),
    "asarray": lambda d: torch.asarray([1.0, 2.0], device=d),
    "tensor of an array": lambda d: torch.tensor(np.arange(4).reshape(2, 2), device=d),
    "zeros_like": lambda d: torch.zeros_like(torch.ones(2, device=d)),
    "full_like of the host": lambda d: torch.full_like(torch.ones(2), 4, device=d),
    "new_zeros": lambda d: torch.ones(1, device=d).new_zeros(2),
    "new_tensor": lambda d: torch.ones(1, device=d).new_tensor([1.0, 2.0]),
    "new_full": lambda d: torch.ones(1).new_full((2,), 3.0, device=d),
    "new_ones": lambda d: torch.ones(1, device=d).new_ones((2, 2), dtype=torch.int32),
    "new of a size": lambda d: torch.ones(1, device=d, dtype=torch.float64).new(2, 3).zero_(),
    "new of data": lambda d: torch.ones(1, device=d).new([1, 2]),
    "complex": lambda d: torch.complex(torch.ones(2, device=d), torch.ones(2, device=d)),
    "polar": lambda d: torch.polar(torch.ones(2, device=d), torch.zeros(2, device=d)),
    "tril_indices": lambda d: torch.tril_indices(3, 3, device=d),
    "hann_window": lambda d: torch.hann_window(8, device=d),
    "fftfreq": lambda d: torch.fft.fftfreq(5, device=d),
    "strided": lambda d: torch.empty_strided((2, 3), (1, 2), device=d).fill_(1),
    "channels last": lambda d: torch.ones(1, 2, 3, 3, device=d).to(memory_format=torch.channels_last),
    "stacked": lambda d: torch.stack([torch.zeros(2, device=d), torch.ones(2, device=d)]),
    "meshgrid": lambda d: torch.meshgrid(torch.arange(2, device=d), torch.arange(3, device=d), indexing="ij")[0],
    "one_hot": lambda d: torch.nn.functional.one_hot(torch.tensor([0, 2], device=d)),
    "a parameter": lambda d: torch.nn.Parameter(torch.ones(2, device=d)).detach(),
}


@pytest.mark.parametrize("form", MAKERS)
def test_created_tensors_equal_the_hosts(form):
    there, on_host = MAKERS[form](GPU), MAKERS[form]("cpu")
    assert is_on_gpu(there)
    assert type(there) is type(on_host)
    assert there.stride() == on_host.stride()
    torch.testing.assert_close(there.cpu(), on_host, rtol=0, atol=0)


DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128]
DTYPES += [torch.complex32, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]
DTYPES += [torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2]


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental", "ignore:Casting complex values to real")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_is_copied(dtype):
    x = torch.tensor([0, 1, 1, 0, 1]).to(dtype)
    there = x.to(GPU)
    assert is_on_gpu(there)
    assert there.dtype == dtype
    assert torch.equal(there.cpu().view(torch.uint8), x.view(torch.uint8))
    assert is_on_gpu(there.clone())
    assert torch.equal(there.view(torch.uint8).cpu(), x.view(torch.uint8))
    assert there.to(torch.float32).cpu().tolist() == [0, 1, 1, 0, 1]
