"""Operators that are named after cuDNN, and others of CUDA that only rename or join operators of the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from devshim_backends._torch.simulation.dtypes import write_out

aten = torch.ops.aten
_BILINEAR, _ZEROS = 0, 0  # the numbers of an interpolation and of a padding


def convolve(
    x: Any, weight: Any, padding: Any, stride: Any, dilation: Any, groups: int, *choices: bool, out: Any = None
) -> Any:
    """Implement ``aten::cudnn_convolution``."""
    result = _convolve(x, weight, None, stride, padding, dilation, groups)
    return result if out is None else write_out("aten::cudnn_convolution", out, result)


def convolve_transposed(
    x: Any,
    weight: Any,
    padding: Any,
    output_padding: Any,
    stride: Any,
    dilation: Any,
    groups: int,
    *choices: bool,
) -> Any:
    """Implement ``aten::cudnn_convolution_transpose``."""
    return aten.convolution.default(x, weight, None, stride, padding, dilation, True, output_padding, groups)


def convolve_relu(x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """Implement ``aten::cudnn_convolution_relu``."""
    return _convolve(x, weight, bias, stride, padding, dilation, groups).relu_()


def convolve_add_relu(
    x: Any,
    weight: Any,
    term: Any,
    alpha: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> Any:
    """Implement ``aten::cudnn_convolution_add_relu``."""
    result = _convolve(x, weight, bias, stride, padding, dilation, groups)
    return result.add_(term, alpha=1 if alpha is None else alpha).relu_()


def convolve_by_channel(
    x: Any,
    weight: Any,
    kernel_size: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    *,
    out: Any = None,
) -> Any:
    """Implement ``aten::_conv_depthwise2d`` and ``aten::conv_depthwise3d``: each channel has its own weights."""
    result = _convolve(x, weight, bias, stride, padding, dilation, x.shape[1])
    return result if out is None else write_out("aten::_conv_depthwise2d", out, result)


def _convolve(x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    return aten.convolution.default(x, weight, bias, stride, padding, dilation, False, [0] * len(stride), groups)


def batch_norm(
    x: Any, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, momentum: float, epsilon: float
) -> tuple[Any, Any, Any, Any]:
    """Implement ``aten::cudnn_batch_norm``; the last result is cuDNN's reserved memory."""
    results = aten.native_batch_norm.default(x, weight, bias, mean, variance, training, momentum, epsilon)
    return *results, x.new_empty(0, dtype=torch.uint8)


def batch_norm_into(*args: Any, out0: Any, out1: Any, out2: Any, out3: Any) -> tuple[Any, ...]:
    """Implement ``aten::cudnn_batch_norm.out``."""
    outs = (out0, out1, out2, out3)
    return tuple(write_out("aten::cudnn_batch_norm", *each) for each in zip(outs, batch_norm(*args), strict=True))


def batch_norm_backward(
    x: Any,
    grad: Any,
    weight: Any,
    mean: Any,
    variance: Any,
    saved_mean: Any,
    saved_factor: Any,
    epsilon: float,
    reserved: Any,
) -> tuple[Any, Any, Any]:
    """Implement ``aten::cudnn_batch_norm_backward``, which exists only for training."""
    saved, needed = (mean, variance, saved_mean, saved_factor), [True, True, True]
    grads: tuple[Any, Any, Any] = aten.native_batch_norm_backward.default(
        grad, x, weight, *saved, True, epsilon, needed
    )
    return grads


def sample(x: Any, grid: Any) -> Any:
    """Implement ``aten::cudnn_grid_sampler``."""
    return aten.grid_sampler_2d.default(x, grid, _BILINEAR, _ZEROS, True)


def sample_backward(x: Any, grid: Any, grad: Any) -> Any:
    """Implement ``aten::cudnn_grid_sampler_backward``."""
    return aten.grid_sampler_2d_backward.default(grad, x, grid, _BILINEAR, _ZEROS, True, [True, True])


def make_grid(theta: Any, count: int, channels: int, height: int, width: int) -> Any:
    """Implement ``aten::cudnn_affine_grid_generator``."""
    return aten.affine_grid_generator.default(theta, [count, channels, height, width], True)


def make_grid_backward(grad: Any, count: int, channels: int, height: int, width: int) -> Any:
    """Implement ``aten::cudnn_affine_grid_generator_backward``."""
    base = make_grid(torch.eye(2, 3, dtype=grad.dtype, device=grad.device)[None], 1, channels, height, width)
    points = torch.cat([base, torch.ones_like(base[..., :1])], -1).view(1, height * width, 3)
    return grad.reshape(count, height * width, 2).transpose(1, 2).matmul(points)


def drop_out(x: Any, kept: float, generator: Any = None) -> tuple[Any, Any]:
    """Implement ``aten::_fused_dropout``, whose number is the share of elements that are kept."""
    mask = torch.empty_like(x).bernoulli_(kept, generator=generator)
    return x * mask / kept, mask.to(torch.uint8)


def scale_by_mask(x: Any, mask: Any, scale: float) -> Any:
    """Implement ``aten::_masked_scale``, the gradient of `drop_out`."""
    return x * mask.to(x.dtype) * scale


def rms_norm_backward(grad: Any, x: Any, shape: Any, factor: Any, weight: Any, needed: Any) -> tuple[Any, Any]:
    """Implement ``aten::_fused_rms_norm_backward``: the gradients of the input and of the weight."""
    dims, wide = list(range(x.dim() - len(shape), x.dim())), factor.dtype
    normed = x.to(wide) * factor
    scaled = grad.to(wide) if weight is None else grad.to(wide) * weight.to(wide)
    of_input = of_weight = None
    if needed[0]:
        of_input = (factor * (scaled - normed * (scaled * normed).mean(dims, keepdim=True))).to(x.dtype)
    if needed[1] and weight is not None:
        of_weight = (grad.to(wide) * normed).reshape(-1, *shape).sum(0).to(weight.dtype)
    return of_input, of_weight


CUDNN_KERNELS: Mapping[str, Callable[..., Any]] = {
    **dict.fromkeys(("cudnn_convolution", "cudnn_convolution.out"), convolve),
    "cudnn_convolution_transpose": convolve_transposed,
    "cudnn_convolution_relu": convolve_relu,
    "cudnn_convolution_add_relu": convolve_add_relu,
    **dict.fromkeys(("_conv_depthwise2d", "_conv_depthwise2d.out", "conv_depthwise3d"), convolve_by_channel),
    "cudnn_batch_norm": batch_norm,
    "cudnn_batch_norm.out": batch_norm_into,
    "cudnn_batch_norm_backward": batch_norm_backward,
    "cudnn_grid_sampler": sample,
    "cudnn_grid_sampler_backward": sample_backward,
    "cudnn_affine_grid_generator": make_grid,
    "cudnn_affine_grid_generator_backward": make_grid_backward,
    "_fused_dropout": drop_out,
    "_masked_scale": scale_by_mask,
    "_fused_rms_norm_backward": rms_norm_backward,
    "_use_cudnn_ctc_loss": lambda *args: False,
    "_use_cudnn_ctc_loss.Tensor": lambda *args: False,
}
"""Operator -> its kernel at PrivateUse1."""
