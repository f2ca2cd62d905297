"""``torch.use_deterministic_algorithms``: what CUDA cannot compute in a fixed order is refused on simulated GPUs, too.

The CPU computes all of it in a fixed order. Therefore the kernels that refuse exist only while the setting is on.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch

from devshim.simulation.patching import Patches
from devshim_backends._torch.simulation.hooks import without_modes
from devshim_backends._torch.simulation.internals.composites import as_one_call, operator
from devshim_backends._torch.simulation.native_names.internals.replaced_operators import ReplacedOperators

__all__ = ["install", "uninstall"]

_MAX = 2
"""The number of the mode ``max`` of `torch.nn.EmbeddingBag`."""


def _accumulates(x: Any, index: Any, source: Any, accumulate: bool = False) -> bool:
    return accumulate  # PyTorch's CPU kernel refuses the other form itself


def _has_weights(x: Any, weights: Any = None, minlength: int = 0) -> bool:
    return weights is not None


def _adds_fractions(x: Any, dim: int, *, dtype: Any = None, out: Any = None) -> bool:
    chosen = x.dtype if dtype is None else dtype
    return bool(x.dim() and x.numel() and (chosen.is_floating_point or chosen.is_complex))


def _multiplies(x: Any, dim: int, index: Any, source: Any, reduce: str, **options: Any) -> bool:
    return reduce == "prod"


def _is_of_maxima(*args: Any) -> bool:
    return bool(args[8] == _MAX)


_NAMES: Mapping[str, tuple[str, Callable[..., bool] | None]] = {
    "avg_pool3d_backward": ("avg_pool3d_backward_cuda", None),
    "_adaptive_avg_pool2d_backward": ("adaptive_avg_pool2d_backward_cuda", None),
    "_adaptive_avg_pool3d_backward": ("adaptive_avg_pool3d_backward_cuda", None),
    "adaptive_max_pool2d_backward": ("adaptive_max_pool2d_backward_cuda", None),
    "fractional_max_pool2d_backward": ("fractional_max_pool2d_backward_cuda", None),
    "fractional_max_pool3d_backward": ("fractional_max_pool3d_backward_cuda", None),
    "upsample_linear1d_backward": ("upsample_linear1d_backward_out_cuda", None),
    "upsample_bilinear2d_backward": ("upsample_bilinear2d_backward_out_cuda", None),
    "upsample_bicubic2d_backward": ("upsample_bicubic2d_backward_out_cuda", None),
    "upsample_trilinear3d_backward": ("upsample_trilinear3d_backward_out_cuda", None),
    **{
        f"_upsample_{mode}2d_aa_backward": ("upsample_gen2d_backward_out_cuda", None)
        for mode in ("bilinear", "bicubic")
    },
    "reflection_pad1d_backward": ("reflection_pad1d_backward_out_cuda", None),
    "reflection_pad2d_backward": ("reflection_pad2d_backward_cuda", None),
    "reflection_pad3d_backward": ("reflection_pad3d_backward_out_cuda", None),
    **{f"replication_pad{n}d_backward": (f"replication_pad{n}d_backward_cuda", None) for n in (1, 2, 3)},
    "nll_loss2d_forward": ("nll_loss2d_forward_out_cuda_template", None),
    **dict.fromkeys(("_ctc_loss_backward", "_ctc_loss_backward.Tensor"), ("ctc_loss_backward_gpu", None)),
    "_embedding_bag_backward": ("embedding_bag_backward_cuda_max", _is_of_maxima),
    "put_": ("put_", _accumulates),
    **dict.fromkeys(("histc", "histc.out"), ("_histc_cuda", None)),
    "bincount": ("_bincount_cuda", _has_weights),
    **{
        f"{name}.{form}": ("median CUDA with indices output", None)
        for name in ("median", "nanmedian")
        for form in ("dim", "dim_values")
    },
    **{f"grid_sampler_{n}d_backward": (f"grid_sampler_{n}d_backward_cuda", None) for n in (2, 3)},
    **dict.fromkeys(("cumsum", "cumsum_", "cumsum.out"), ("cumsum_cuda_kernel", _adds_fractions)),
    **dict.fromkeys(
        ("scatter_reduce.two", "scatter_reduce_.two", "scatter_reduce.two_out"),
        ("scatter_reduce_cuda_prod_", _multiplies),
    ),
}
"""Operator -> the name in CUDA's error, and which calls it refuses; None is all.

Source: the docstring of ``torch.use_deterministic_algorithms`` in PyTorch 2.13. PyTorch itself refuses on every device
what is not only CUDA's, such as ``max_unpool2d``, and computes interpolation and padding by other operators.
"""
_REPORT = (
    "You can file an issue at https://github.com/pytorch/pytorch/issues to help us prioritize adding deterministic"
)
_OPERATORS = ReplacedOperators("aten", "PrivateUse1")


def _complain(name: str) -> None:
    """Raise CUDA's error, or warn if the program wants only a warning."""
    text = f"{name} does not have a deterministic implementation, but you set 'torch.use_deterministic_algorithms(True"
    if torch._C._get_deterministic_algorithms_warn_only():
        warnings.warn(f"{text}, warn_only=True)'. {_REPORT} support for this operation.", UserWarning, stacklevel=2)
        return
    advice = (
        "You can turn off determinism just for this operation, or you can use the 'warn_only=True' option, if that's "
        f"acceptable for your application. {_REPORT.replace('can file', 'can also file')} support for this operation."
    )
    msg = f"{text})'. {advice}"
    raise RuntimeError(msg)


def _kernel(name: str) -> Callable[..., Any]:
    """Return a kernel that complains about the calls that CUDA refuses, and computes the others."""
    compute, (shown, is_refused) = as_one_call(name), _NAMES[name]

    def kernel(*args: Any, **kwargs: Any) -> Any:
        if is_refused is None or is_refused(*args, **kwargs):
            _complain(shown)
        return compute(*args, **kwargs)

    return without_modes(kernel)


def _kernels() -> dict[str, Callable[..., Any]]:
    return {name: _kernel(name) for name in _NAMES if operator(name) is not None}


def _follow(is_on: bool) -> None:
    if is_on:
        _OPERATORS.install(_kernels)
    else:
        _OPERATORS.uninstall()


def _set(real: Callable[..., None]) -> Callable[..., None]:
    """Return a replacement for the function under `torch.use_deterministic_algorithms`."""

    def set_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
        real(mode, warn_only=warn_only)
        _follow(mode)

    return set_deterministic_algorithms


def install(patches: Patches) -> None:
    """Install the replacement, and the kernels if the setting is on already."""
    patches.replace(torch._C, "_set_deterministic_algorithms", _set(torch._C._set_deterministic_algorithms))
    _follow(torch._C._get_deterministic_algorithms())


def uninstall() -> None:
    """Remove the kernels."""
    _OPERATORS.uninstall()
