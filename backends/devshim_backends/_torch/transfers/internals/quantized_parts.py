"""Parts of quantized tensors with one scale per channel, which PyTorch cannot join, and of which it slices only some.

They are taken apart into integers, scales and zero points, and made from these again. Several 4-bit or 2-bit numbers
share a byte: PyTorch's own slices of them have wrong values (2.13), so they are refused.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch

from devshim.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devshim.contract.backend import Tensor

__all__ = ["copy_on_host", "is_per_channel", "join", "narrow"]

_FLOATS = torch.per_channel_affine_float_qparams
_HINT = "call x.dequantize() first"
_PACKED = {getattr(torch, name) for name in ("quint4x2", "quint2x4") if hasattr(torch, name)}


def is_per_channel(x: Tensor) -> bool:
    """Return True for a quantized tensor that has more than one scale."""
    return bool(x.is_quantized and x.qscheme() is not torch.per_tensor_affine)


def copy_on_host(x: Tensor) -> Tensor:
    """Return a copy of a host tensor that ``clone`` or ``to`` does not copy: the bytes, and the same parameters."""
    return copy.deepcopy(x.detach())


def narrow(x: Tensor, axis: int, start: int, stop: int) -> Tensor:
    """Return a part of a tensor along an axis: a view where PyTorch has one."""
    if x.dtype in _PACKED:
        raise _error("split", f"a tensor of {_name(x.dtype)}")
    if x.qscheme() is not _FLOATS:
        return x.narrow(axis, start, stop - start)
    scales, zeros, along = x.q_per_channel_scales(), x.q_per_channel_zero_points(), x.q_per_channel_axis()
    if axis % x.dim() == along:
        scales, zeros = scales[start:stop], zeros[start:stop]
    values = x.int_repr().narrow(axis, start, stop - start)
    return torch._make_per_channel_quantized_tensor(values, scales.contiguous(), zeros.contiguous(), along)


def join(xs: Sequence[Tensor], axis: int) -> Tensor:
    """Return tensors joined along an axis; without one scale per channel, they are joined by PyTorch.

    A part with one channel, which PyTorch has made by slicing, has one scale.

    Raises:
        UnsupportedError: The result would need different scales in one channel.
    """
    if xs[0].dtype in _PACKED:
        raise _error("join", f"a tensor of {_name(xs[0].dtype)}")
    channels = [x for x in xs if is_per_channel(x)]
    along = channels[0].q_per_channel_axis()
    same_kind = len({x.dtype for x in xs} | {x.q_per_channel_zero_points().dtype for x in channels}) == 2
    if not same_kind or any(x.q_per_channel_axis() != along for x in channels):
        raise _error("join", "quantized tensors of different kinds")
    parameters = [_parameters(x, channels[0], along) for x in xs]
    if axis % xs[0].dim() == along:
        scales, zeros = (torch.cat(each) for each in zip(*parameters, strict=True))
    else:
        (scales, zeros), *others = parameters
        if not all(torch.equal(scales, one) and torch.equal(zeros, other) for one, other in others):
            raise _error("join", "quantized tensors with different scales")
    return torch._make_per_channel_quantized_tensor(torch.cat([x.int_repr() for x in xs], axis), scales, zeros, along)


def _parameters(x: Tensor, like: Tensor, along: int) -> tuple[Tensor, Tensor]:
    """Return the scale and the zero point of each channel."""
    if is_per_channel(x):
        return x.q_per_channel_scales(), x.q_per_channel_zero_points()
    of_all: tuple[tuple[Tensor, Any], ...] = (
        (like.q_per_channel_scales(), x.q_scale()),
        (like.q_per_channel_zero_points(), x.q_zero_point()),
    )
    scales, zeros = (one.new_full((x.shape[along],), value) for one, value in of_all)
    return scales, zeros


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _error(verb: str, what: str) -> UnsupportedError:
    msg = f"PyTorch cannot {verb} {what}"
    return UnsupportedError(msg, _HINT)
