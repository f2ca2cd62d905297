"""A real GPU's rules for mixed devices: which calls it refuses and which it accepts.

Elementwise operators (PyTorch's tag ``pointwise``) accept 0-d host tensors together with a GPU's tensors, except those
in `CHECKED`. The operators listed here also do, and a few expect host tensors in certain positions. Every other
operator expects all tensors on one device, including 0-d tensors; the same applies to every tensor that is written to.

The source is ``native_functions.yaml``, which the wheel of PyTorch contains: CUDA's operators compare the devices of
all arguments before the kernel, unless their entry says ``device_check: NoCheck``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from devshim.errors import DeviceMismatchError, JoinedError
from devshim_backends._torch.simulation.internals.state import TYPES, gpu_name

HOST_SCALARS = frozenset(
    {
        *("where", "lerp", "lerp_", "floor_divide", "floor_divide_", "rsub", "heaviside_", "copysign_"),
        *("eq_", "ne_", "ge_", "le_", "gt_", "lt_", "__ilshift__", "__irshift__"),
        *("_foreach_add", "_foreach_add_", "_foreach_mul", "_foreach_mul_", "_foreach_div", "_foreach_div_"),
    }
)
"""Operators without the tag ``pointwise`` that accept 0-d host tensors: their kernels read the value."""

READ_VALUES: Mapping[str, int] = {
    **dict.fromkeys(("fill", "fill_"), 1),
    **dict.fromkeys(("masked_fill", "masked_fill_"), 2),
    **dict.fromkeys(("index_fill", "index_fill_"), 3),
}
"""Operator -> the position of a 0-d tensor that may be on any device: they call ``value.item()``."""
COPIED_VALUES: Mapping[str, int] = dict.fromkeys(
    ("index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put"), 2
)
"""Operator -> the position of a tensor that may be on any device if it is 0-d: they copy it to the other tensors."""

CHECKED = frozenset(
    {
        *("clamp", "clamp_", "clamp_max", "clamp_max_", "clamp_min", "clamp_min_", "equal"),
        *("gcd", "gcd_", "lcm", "lcm_", "igamma", "igamma_", "igammac", "igammac_", "nextafter", "nextafter_"),
        *("logaddexp", "logaddexp2", "gelu_backward", "silu_backward", "threshold_backward", "logit_backward"),
        *("sigmoid_backward", "tanh_backward", "native_dropout_backward"),
    }
)
"""Operators with the tag ``pointwise`` that compare the devices of all arguments first."""

_SECOND = frozenset({1})
INDEXED = ("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put")

HOST_POSITIONS: Mapping[str, frozenset[int]] = {
    **dict.fromkeys(INDEXED, _SECOND),
    **dict.fromkeys(("_pack_padded_sequence", "_nested_from_padded"), _SECOND),
    "_nested_view_from_buffer": frozenset({1, 2, 3}),
    "_ctc_loss": frozenset({1, 2, 3}),
    "_ctc_loss_backward": frozenset({2, 3, 4}),
}
"""Operator -> positions of arguments that may be on the host: indices, lengths, and cuDNN's targets."""

HOST_KEYWORDS: Mapping[str, frozenset[str]] = dict.fromkeys(
    ("_fused_adagrad_", "_fused_adam_", "_fused_adamw_", "_fused_sgd_"), frozenset({"lr"})
)
"""Operator -> names of arguments that may be on the host: CUDA's fused optimizers read a learning rate there."""


class MixedDevicesError(JoinedError, DeviceMismatchError, RuntimeError):
    """Error for tensors of one call on several devices: devshim's error, and a real GPU's ``RuntimeError``, in one."""


def _hint(gpu: str) -> str:
    if "cuda" in TYPES:
        return f'move the others to it: x.to("{gpu}")'
    return "move one of them to the other's device: ds.place(x, ds.device_of(y))"


_VALUE_OF_MASKED_FILL = READ_VALUES["masked_fill"]
_BY_TYPE = {1: "weight", 2: "bias"}
"""Positions in a convolution, whose types PyTorch compares with that of the input: a tensor's type names its device."""
_ONEDNN = ("_ConvBackend.Mkldnn", "_ConvBackend.???")
"""The names that PyTorch prints for oneDNN's kernels. It prints ``???`` for the transposed kernel."""


def _in_its_terms(plan: Any, at: Mapping[int, Any], host: Any, arguments: Sequence[Any]) -> str:
    """Return the error text of an operator that checks its own arguments, or an empty text.

    Args:
        plan: The operator's plan.
        at: The positions of two arguments -> their devices.
        host: The argument that is on the host, if one is.
        arguments: The positional arguments of the call, as host tensors, if all of them were converted.
    """
    if plan.name in ("aten::masked_fill", "aten::masked_fill_") and 0 in at:
        if host is not None and at[0] == host.device and isinstance(arguments[_VALUE_OF_MASKED_FILL], torch.Tensor):
            return "masked_fill_: Expected inputs to be on same device"
        return f"expected self and mask to be on the same device, but got mask on {at[1]} and self on {at[0]}"
    if plan.takes_indices and 1 in at and at.keys() <= {0, 1}:
        return f"indices should be either on cpu or on the same device as the indexed tensor ({at.get(0, 'cpu')})"
    if plan.name != "aten::convolution" or host is None or "cuda" not in TYPES:
        return ""
    kind = str(host.type())
    there = kind.replace("torch.", "torch.cuda.")
    position = next(n for n, device in at.items() if device == host.device)
    if position in _BY_TYPE:
        return f"Input type ({there}) and {_BY_TYPE[position]} type ({kind}) should be the same"
    if position == 0 and _is_for_onednn(arguments):
        types = f"Input type ({kind}) and weight type ({there}) should be the same"
        return f"{types} or input should be a MKLDNN tensor and weight is a dense tensor"
    return ""


def _is_for_onednn(arguments: Sequence[Any]) -> bool:
    """Return True if PyTorch computes a convolution of an input on the host with oneDNN, which compares the types.

    PyTorch chooses before it compares the devices: for several images, groups or large kernels.
    """
    bias = arguments[2]
    sizes = None if bias is None else bias.shape
    return str(torch._C._select_conv_backend(*arguments[:9], sizes)) in _ONEDNN


def mixed_devices_error(
    plan: Any, gpu: str, other: Any, positions: tuple[int, int], host: Any = None, arguments: Sequence[Any] = ()
) -> MixedDevicesError:
    """Return the error that PyTorch's kernels raise for an argument on another device than the earlier ones.

    Args:
        plan: The operator's plan.
        gpu: The name of a GPU that an argument is on.
        other: The other device.
        positions: The positions of the arguments on both devices, or -1.
        host: The argument on the other device, if it is on the host.
        arguments: The positional arguments of the call, as host tensors, if all of them were converted.
    """
    own = _in_its_terms(plan, dict(zip(positions, (gpu, other), strict=True)), host, arguments)
    return MixedDevicesError(own or _different_devices(plan.name, gpu, other), _hint(gpu))


def different_devices_error(name: str, gpu: int, other: int) -> MixedDevicesError:
    """Return the same error for an operator that has its own kernel.

    Args:
        name: The operator's name, such as ``aten::mm``.
        gpu: The index of a GPU that an argument is on.
        other: The index of the other GPU, or -1 for the host.
    """
    return MixedDevicesError(
        _different_devices(name, gpu_name(gpu), "cpu" if other < 0 else gpu_name(other)), _hint(gpu_name(gpu))
    )


def _different_devices(name: str, gpu: str, other: Any) -> str:
    found = f"found at least two devices, {gpu} and {other}!"
    return f"Expected all tensors to be on the same device, but {found} (when checking arguments for {name})"
