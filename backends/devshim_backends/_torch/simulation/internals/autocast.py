"""``torch.autocast("sim")``: CUDA's lists of operators for the lower precision, for float32 and for the widest type."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import torch

from devshim_backends._torch.simulation.internals.composites import operator
from devshim_backends._torch.simulation.internals.state import NAME

LOWER = (
    *("_convolution", "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d", "conv_transpose2d.input"),
    *("conv_transpose3d.input", "convolution", "prelu", "addmm", "addmv", "addr", "matmul", "einsum", "mm", "mv"),
    *("linalg_vecdot", "linear", "addbmm", "baddbmm", "bmm", "chain_matmul", "linalg_multi_dot"),
    *("_thnn_fused_lstm_cell", "_thnn_fused_gru_cell", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"),
    *("_scaled_dot_product_flash_attention", "scaled_dot_product_attention"),
)
"""Operators that run in the lower precision."""

FULL = (
    *("acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt"),
    *("sinh", "tan", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "softplus", "layer_norm"),
    *("native_layer_norm", "group_norm", "frobenius_norm.dim", "nuclear_norm", "nuclear_norm.dim"),
    *("cosine_similarity", "poisson_nll_loss", "cosine_embedding_loss", "nll_loss", "nll_loss2d"),
    *("hinge_embedding_loss", "kl_div", "l1_loss", "smooth_l1_loss", "huber_loss", "mse_loss"),
    *("margin_ranking_loss", "multilabel_margin_loss", "soft_margin_loss", "triplet_margin_loss"),
    *("multi_margin_loss", "binary_cross_entropy_with_logits", "cross_entropy_loss", "dist", "pdist", "cdist"),
    *("renorm", "logsumexp", "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_linear1d"),
    *("upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d"),
    *("prod", "prod.dim_int", "softmax.int", "log_softmax.int", "cumprod", "cumsum", "sum", "sum.dim_IntList"),
    *("norm.Scalar", "norm.ScalarOpt_dim", "linalg_vector_norm", "linalg_matrix_norm"),
)
"""Operators that run in float32."""

WIDEST = (
    *("addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "grid_sampler", "index_put", "tensordot"),
    *("scatter_add", "cat", "stack", "vdot"),
)
"""Operators that run in the widest type of their arguments."""

_BANNED = (
    "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
    "Many models use a sigmoid layer right before the binary cross entropy layer.\n"
    "In this case, combine the two layers using torch.nn.functional.binary_cross_entropy_with_logits\n"
    "or torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are\n"
    "safe to autocast."
)
_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)
_Tensor = torch.Tensor


def _cast_arguments(op: Any, choose: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    """Return a kernel that casts a GPU's floating-point tensors, except float64, and calls the operator."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        dtype = choose([*args, *kwargs.values()])
        with torch._C._ExcludeDispatchKeyGuard(_KEYS):
            return op(*[_cast(each, dtype) for each in args], **{k: _cast(v, dtype) for k, v in kwargs.items()})

    return kernel


def _cast(value: Any, dtype: Any) -> Any:
    if isinstance(value, _Tensor):
        return value.to(dtype) if _is_eligible(value) else value
    if isinstance(value, (list, tuple)):
        return type(value)([_cast(each, dtype) for each in value])
    return value


def _is_eligible(tensor: Any) -> bool:
    return tensor.is_floating_point() and tensor.dtype is not torch.float64 and tensor.get_device() >= 0


def _widest(values: list[Any]) -> Any:
    flat = [each for value in values for each in (value if isinstance(value, (list, tuple)) else (value,))]
    floating = [each.dtype for each in flat if isinstance(each, _Tensor) and _is_eligible(each)]
    return reduce(torch.promote_types, floating, torch.get_autocast_dtype(NAME))


def _refuse(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError(_BANNED)


def kernels() -> dict[str, Callable[..., Any]]:
    """Return the kernel of each operator at AutocastPrivateUse1."""
    chosen: dict[str, Callable[[list[Any]], Any]] = {
        **dict.fromkeys(LOWER, lambda values: torch.get_autocast_dtype(NAME)),
        **dict.fromkeys(FULL, lambda values: torch.float32),
        **dict.fromkeys(WIDEST, _widest),
    }
    casting = {
        name: _cast_arguments(op, choose) for name, choose in chosen.items() if (op := operator(name)) is not None
    }
    return {**casting, "binary_cross_entropy": _refuse}
