"""Which of Paddle's operators may be given tensors on which devices, while GPUs are simulated.

Requirements this module answers:

* Tensors on two cards, or on a card and the host, are refused.
* What mixes on real cards mixes here: a 0-d tensor of the host with anything, host tensors that index a card's, tensors
  that stand for numbers (a shape, an axis), and copies.
* Paddle's optimizers keep scalars of one element on the host, or on the default device, and give them to operators with
  parameters on any other: Paddle's own doing, not the program's, and let pass.
* Cheap where there is nothing to refuse, which is nearly always: the place of each tensor is looked at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devshim.devices.device import CPU, Device
from devshim.registry import mismatches
from devshim_backends._paddle.devices import HOST, core

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["COPIES", "Rule", "place_of", "tensors_in"]

Tensor = core.eager.Tensor

COPIES = frozenset({"assign_out_", "copy_to", "memcpy", "memcpy_d2h", "memcpy_h2d", "share_data", "share_data_"})
"""Operators whose arguments are meant to be on different devices."""

_DATA_FIRST = {
    0: "arange empty eye full full_ full_with_tensor gaussian linspace logspace randint randperm "
    "truncated_gaussian_random uniform",
    1: "as_strided bicubic_interp bilinear_interp bincount clip clip_ crop cumsum dropout expand fill fill_ "
    "frobenius_norm full_like linear_interp logsumexp max mean min multinomial nearest_interp one_hot pad pad3d pool2d "
    "pool3d prod repeat_interleave reshape reshape_ roll scale scale_ set_value set_value_ slice split split_with_num "
    "squeeze squeeze_ strided_slice sum tile topk trilinear_interp uniform_inplace uniform_inplace_ unsqueeze "
    "unsqueeze_ view_shape",
    2: "conv2d_transpose conv3d_transpose depthwise_conv2d_transpose set_value_with_tensor set_value_with_tensor_",
}
_DATA = {name: count for count, names in _DATA_FIRST.items() for name in names.split()}
"""Operator -> how many of its first arguments are data; tensors among the others stand for numbers."""

_OPTIMIZERS = (
    *("adam", "adadelta", "adagrad", "asgd", "lamb", "merged_adam", "merged_momentum", "momentum", "nadam", "radam"),
    *("rmsprop", "rprop", "sgd", "check_finite_and_unscale", "update_loss_scaling"),
)
"""How the names of operators begin that Paddle gives learning rates, powers and scales from wherever they are."""


class Rule:
    """What one operator, or method of tensors, may be given.

    Args:
        name: Paddle's name for it.
    """

    def __init__(self, name: str) -> None:
        self._call = f"paddle.Tensor.{name}" if name.startswith("_") else f"paddle.{name}"
        self._data = _DATA.get(name)
        self._is_optimizer = name.startswith(_OPTIMIZERS)

    def check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise `DeviceMismatchError` where the tensors among the arguments must not meet."""
        if self._data is not None:
            args, kwargs = args[: self._data], {}
        found: Device | None = None
        for x in tensors_in((*args, *kwargs.values()) if kwargs else args):
            place = place_of(x)
            if found is None or place is None or place is found:
                found = found or place
            else:
                self._look_closely(args, kwargs)
                return

    def _look_closely(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        located: dict[str, Device] = {}
        for name, values in [*((f"argument {i}", x) for i, x in enumerate(args)), *kwargs.items()]:
            found = list(tensors_in((values,)))
            for i, x in enumerate(found):
                place = place_of(x)
                if place is not None and not self._is_scalar(x, place):
                    located[name if x is values else f"{name}[{i}]"] = place
        if len(set(located.values())) > 1:
            raise mismatches.native_mismatch(located, self._call)

    def _is_scalar(self, x: Any, place: Device) -> bool:
        return (place is CPU and not x.shape) or (self._is_optimizer and x.size <= 1)


def tensors_in(values: Any) -> Iterator[Any]:
    """Yield every tensor among values, and in lists and tuples among them."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif type(value) in (list, tuple):
            yield from tensors_in(value)


def place_of(x: Any) -> Device | None:
    """Return where a tensor is, or None where it has no memory yet or is on a device that is not simulated."""
    try:
        place = x.place
    except Exception:  # Paddle has no one class for it
        return None
    found = HOST.get(place._type())
    if found is not None:
        return found
    return Device("gpu", place.custom_device_id()) if place.is_custom_place() else None
