"""Aligning the devices of an operator's operands while a split model runs.

If one of an operator's tensors is a parameter, the operator computes on that parameter's device; otherwise, on the
device of the part that ran last. A tensor that is written in place stays where it is. All other tensors are copied to
that device, and gradients flow back.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from devshim.tensors import activations
from devshim_backends._torch.devices import DEVICES, is_host_scalar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devshim.contract.backend import Tensor


class ForwardPass(threading.local):
    """The forward pass of a split model that is running in this thread."""

    devices: dict[Any, None] | None = None
    """The devices of the model's parts; None while no split model is running."""
    last_device: Any = None
    """The device of the part that ran last."""
    aligning: bool = False
    """True while operands are being aligned."""

    def enter_part(self, device: Any) -> None:
        """Record that a part on this device runs now."""
        if self.devices is not None:
            self.last_device = device


FORWARD = ForwardPass()


def to_device(x: Tensor, device: Any) -> Tensor:
    """Return a tensor on a device; devshim's copy engine makes and records the copy."""
    if x.device == device or x.device.type == "meta":
        return x
    return activations.move_activation(x, DEVICES.get(device, device))


_UNALIGNED = frozenset({"to", "type_as", "cpu", "cuda", "copy_", "set_", "backward", "__get__", "__set__"})
_UNALIGNED |= {"view_as", "reshape_as", "expand_as"}
"""Functions that concern devices themselves, or do not read the values of all their tensors."""
_WRITE_STATISTICS = ("batch_norm", "instance_norm")
"""Functions that write to their second argument."""


class AlignDevices(TorchFunctionMode):  # type: ignore[misc]  # PyTorch is Any to the type checker
    """Function mode that brings the tensors of every call to one device."""

    def __enter__(self) -> Any:
        FORWARD.aligning = True
        return super().__enter__()

    def __exit__(self, *failure: object) -> None:
        FORWARD.aligning = False
        super().__exit__(*failure)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = kwargs or {}
        if _are_on_several_devices(args, options):
            name = getattr(func, "__name__", "")
            device = None if name in _UNALIGNED else _common_device(name, args, options)
            if device is not None:
                args, options = pytree.tree_map_only(
                    torch.Tensor, lambda x: x if is_host_scalar(x) else to_device(x, device), (args, options)
                )
        return func(*args, **options)


def _are_on_several_devices(args: Any, options: dict[str, Any]) -> bool:
    """Return True if a call's tensors are on several devices; checked at every call, and usually False."""
    first = None
    for x in _tensors(args, options):
        if first is None:
            first = x.device
        elif x.device != first:
            return True
    return False


def _tensors(args: Any, options: dict[str, Any]) -> Iterator[Tensor]:
    """Yield the tensors of a call that must be on one device, including those in lists."""
    for value in (*args, *options.values()) if options else args:
        for x in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(x, torch.Tensor) and not is_host_scalar(x):
                yield x


def _common_device(name: str, args: Any, options: dict[str, Any]) -> Any:
    """Return the device on which a call must compute; None to leave it to PyTorch."""
    tensors = list(_tensors(args, options))
    written = _written_tensor(name, args, options)
    if written is not None:
        return written.device
    device = next((x.device for x in tensors if isinstance(x, torch.nn.Parameter)), None)
    if device is not None:
        FORWARD.enter_part(device)
        return device
    devices = [x.device for x in tensors]
    if FORWARD.last_device in devices:
        return FORWARD.last_device
    return next((device for device in reversed(devices) if device in (FORWARD.devices or {})), None)


def _written_tensor(name: str, args: Any, options: dict[str, Any]) -> Any:
    """Return the tensor that a call writes to, or None."""
    if options.get("out") is not None:
        written = options["out"]
    elif name in _WRITE_STATISTICS:
        written = options.get("running_mean", args[1] if len(args) > 1 else None)
    elif name == "__setitem__" or name.startswith("__i") or (name.endswith("_") and not name.endswith("__")):
        written = args[0] if args else None
    else:
        return None
    return written[0] if isinstance(written, (list, tuple)) else written
