"""Tests of ``torch.use_deterministic_algorithms`` on simulated GPUs: CUDA's operators without a fixed order."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from simulated_torch import two_cards
from torch import nn
from torch.nn import functional as F

import devshim as ds

D = "cuda:1"


@pytest.fixture(autouse=True)
def cards() -> Iterator[None]:
    """Simulate two GPUs under PyTorch's names for cards."""
    with two_cards():
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(False)


def train(layer: Callable[[Any], Any], *shape: int) -> None:
    """Compute the gradient of a layer for drawn input."""
    layer(torch.randn(*shape, device=D, requires_grad=True)).sum().backward()


def resize(mode: str, *shape: int) -> None:
    train(lambda x: F.interpolate(x, scale_factor=2, mode=mode), *shape)


def ones(count: int = 3, dtype: Any = torch.float32) -> Any:
    return torch.ones(count, device=D, dtype=dtype)


def scatter(how: str) -> Any:
    return ones().scatter_reduce(0, ones(dtype=torch.int64), ones(), how)


REFUSED: dict[str, Callable[[], Any]] = {
    "avg_pool3d_backward_cuda": lambda: train(nn.AvgPool3d(1), 3, 4, 5, 6),
    "adaptive_avg_pool2d_backward_cuda": lambda: train(nn.AdaptiveAvgPool2d(2), 1, 1, 5, 5),
    "adaptive_avg_pool3d_backward_cuda": lambda: train(nn.AdaptiveAvgPool3d(2), 1, 1, 5, 5, 5),
    "adaptive_max_pool2d_backward_cuda": lambda: train(nn.AdaptiveMaxPool2d(2), 1, 1, 5, 5),
    "fractional_max_pool2d_backward_cuda": lambda: train(nn.FractionalMaxPool2d(2, output_ratio=0.5), 1, 1, 8, 8),
    "fractional_max_pool3d_backward_cuda": lambda: train(nn.FractionalMaxPool3d(2, output_ratio=0.5), 1, 1, 8, 8, 8),
    "max_unpooling2d_forward_out": lambda: F.max_unpool2d(ones(4).view(1, 1, 2, 2), ones(4, int).view(1, 1, 2, 2), 2),
    "upsample_linear1d_backward_out_cuda": lambda: resize("linear", 1, 1, 5),
    "upsample_bicubic2d_backward_out_cuda": lambda: resize("bicubic", 1, 1, 5, 5),
    "reflection_pad1d_backward_out_cuda": lambda: train(nn.ReflectionPad1d(1), 1, 1, 5),
    "reflection_pad2d_backward_cuda": lambda: train(nn.ReflectionPad2d(1), 1, 1, 5, 5),
    "reflection_pad3d_backward_out_cuda": lambda: train(nn.ReflectionPad3d(1), 1, 1, 5, 5, 5),
    "nll_loss2d_forward_out_cuda_template": lambda: train(lambda x: F.nll_loss(x, x[:, 0].long() * 0), 2, 3, 5, 5),
    "ctc_loss_backward_gpu": lambda: train(lambda x: F.ctc_loss(x.log_softmax(2), ones(3, int), [5], [3]), 5, 1, 4),
    "embedding_bag_backward_cuda_max": lambda: (
        nn.EmbeddingBag(5, 3, mode="max").to(D)(ones(2, int)[None]).sum().backward()
    ),
    "put_": lambda: ones().put_(ones(1, int), ones(1), accumulate=True),
    "_histc_cuda": lambda: torch.histc(ones()),
    "_bincount_cuda": lambda: torch.bincount(ones(3, int), ones()),
    "median CUDA with indices output": lambda: torch.median(ones().view(3, 1), 0),
    "grid_sampler_2d_backward_cuda": lambda: train(
        lambda x: F.grid_sample(x, torch.zeros(1, 2, 2, 2, device=D), align_corners=False), 1, 1, 4, 4
    ),
    "cumsum_cuda_kernel": lambda: torch.cumsum(ones(), 0),
    "scatter_reduce_cuda_prod_": lambda: scatter("prod"),
}
ACCEPTED: dict[str, Callable[[], Any]] = {
    "bilinear": lambda: resize("bilinear", 1, 1, 5, 5),
    "padding": lambda: train(nn.ReplicationPad2d(1), 1, 1, 5, 5),
    "one label": lambda: train(lambda x: F.nll_loss(x, ones(2, int)), 2, 3),
    "sums of bags": lambda: nn.EmbeddingBag(5, 3).to(D)(ones(2, int)[None]).sum().backward(),
    "counts": lambda: torch.bincount(ones(3, int)),
    "median": lambda: torch.median(ones()),
    "sums of integers": lambda: torch.cumsum(ones(3, int), 0),
    "no dimension": lambda: torch.cumsum(torch.ones((), device=D), 0),
    "scattered sums": lambda: scatter("sum"),
    "index_add": lambda: ones().index_add(0, ones(1, int), ones(1)),
    "convolution": lambda: train(nn.Conv2d(1, 1, 3).to(D), 1, 1, 5, 5),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cuda_refuses_is_refused_or_reported(name: str) -> None:
    REFUSED[name]()
    torch.use_deterministic_algorithms(True)
    with pytest.raises(RuntimeError, match=rf"^{name} does not have a deterministic implementation.*can turn off"):
        REFUSED[name]()
    torch.use_deterministic_algorithms(True, warn_only=True)
    with pytest.warns(UserWarning, match=rf"^{name} does not have .*warn_only=True\)'. You can file an issue"):
        REFUSED[name]()
    torch.set_deterministic_debug_mode("default")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        REFUSED[name]()


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_cuda_computes_in_a_fixed_order_is_computed(name: str) -> None:
    torch.use_deterministic_algorithms(True)
    ACCEPTED[name]()


def test_the_setting_may_be_older_than_the_names_and_ends_with_them() -> None:
    with ds.simulate(0):
        torch.use_deterministic_algorithms(True)
        with ds.simulate(1, native_names=True), pytest.raises(RuntimeError, match=r"^_histc_cuda"):
            torch.histc(torch.ones(2, device="cuda"))
        with ds.simulate(1):
            torch.histc(torch.ones(2, device="sim"))
    assert torch.histc(torch.ones(2)).sum() == 2
