"""The rules for the devices of the tensors that a Paddle operator accepts while GPUs are simulated.

Requirements that this module meets:

* Tensors on two GPUs, or on a GPU and the host, are refused.
* Combinations that work on real cards also work here: a 0-d host tensor with anything, host tensors that index a GPU
  tensor, tensors that represent numbers (a shape, an axis), and copies.
* Paddle's optimizers keep scalars of one element on the host, or on the default device, and pass them to operators with
  parameters on any other device. Paddle does that, not the program, so it is accepted.
* A check is cheap if there is nothing to refuse, which is nearly always: the place of each tensor is read once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devshim.devices.device import CPU, Device
from devshim.registry import mismatches
from devshim_backends._paddle.devices import HOST, core
from devshim_backends._paddle.simulation.internals import error_texts

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["COPIES", "Rule", "device_or_none", "tensors_in"]

Tensor = core.eager.Tensor

COPIES = frozenset({"assign_out_", "copy_to", "memcpy", "memcpy_d2h", "memcpy_h2d", "share_data", "share_data_"})
"""Operators whose arguments are meant to be on different devices."""

_DATA_COUNTS = {
    0: "arange empty eye full full_ full_with_tensor gaussian linspace logspace randint randperm "
    "range_v2 truncated_gaussian_random uniform",
    1: "as_strided bicubic_interp bilinear_interp bincount clip clip_ crop cumsum dropout expand fill fill_ "
    "frobenius_norm full_like linear_interp logsumexp max mean min multinomial nearest_interp one_hot pad pad3d pool2d "
    "pool3d prod repeat_interleave reshape reshape_ roll scale scale_ set_value set_value_ slice split split_with_num "
    "squeeze squeeze_ strided_slice sum tile topk trilinear_interp uniform_inplace uniform_inplace_ unsqueeze "
    "unsqueeze_ view_shape",
    2: "conv2d_transpose conv3d_transpose depthwise_conv2d_transpose set_value_with_tensor set_value_with_tensor_",
}
_DATA = {name: count for count, names in _DATA_COUNTS.items() for name in names.split()}
"""Operator -> the number of leading arguments that are data; tensors among the others represent numbers."""

_OPTIMIZERS = (
    *("adam", "adadelta", "adagrad", "asgd", "lamb", "merged_adam", "merged_momentum", "momentum", "nadam", "radam"),
    *("rmsprop", "rprop", "sgd", "check_finite_and_unscale", "update_loss_scaling"),
)
"""The prefixes of operators that get learning rates, powers and scales from any device."""


class Rule:
    """The rule for the arguments of one operator or tensor method.

    Args:
        name: Paddle's name for it.
    """

    def __init__(self, name: str) -> None:
        self._call = f"paddle.Tensor.{name}" if name.startswith("_") else f"paddle.{name}"
        self._data = _DATA.get(name)
        self._is_optimizer = name.startswith(_OPTIMIZERS)

    def check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise `DeviceMismatchError` if the devices of the tensors among the arguments must not be combined."""
        if self._data is not None:
            args, kwargs = args[: self._data], {}
        first: Device | None = None
        for x in tensors_in((*args, *kwargs.values()) if kwargs else args):
            device = device_or_none(x)
            if first is None or device is None or device is first:
                first = first or device
            else:
                self._refuse_mixed(args, kwargs)
                return

    def _refuse_mixed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise the error, unless the arguments that differ are scalars that may be anywhere."""
        located: dict[str, Device] = {}
        for name, values in [*((f"argument {i}", x) for i, x in enumerate(args)), *kwargs.items()]:
            for i, x in enumerate(tensors_in((values,))):
                device = device_or_none(x)
                if device is not None and not self._is_scalar(x, device):
                    located[name if x is values else f"{name}[{i}]"] = device
        if len(set(located.values())) > 1:
            raise mismatches.native_mismatch_error(located, self._call, error_texts.move_line)

    def _is_scalar(self, x: Any, device: Device) -> bool:
        return (device is CPU and not x.shape) or (self._is_optimizer and x.size <= 1)


def tensors_in(values: Any) -> Iterator[Any]:
    """Yield every tensor among values, and in lists and tuples among them."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif type(value) in (list, tuple):
            yield from tensors_in(value)


def device_or_none(x: Any) -> Device | None:
    """Return a tensor's device, or None if it has no memory yet or is on a device that is not simulated."""
    try:
        place = x.place
    except Exception:  # Paddle has no single class for this error
        return None
    host = HOST.get(place._type())
    if host is not None:
        return host
    return Device("gpu", place.custom_device_id()) if place.is_custom_place() else None
