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
from devshim_backends._torch.devices import DEVICES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devshim.contract.backend import Tensor


class Run(threading.local):
    """The forward pass of a split model that is running in this thread."""

    devices: dict[Any, None] | None = None
    """The devices of the model's parts; None while no split model is running."""
    last: Any = None
    """The device of the part that ran last."""
    meeting: bool = False
    """True while operands are being aligned."""

    def ran(self, device: Any) -> None:
        """Record that a part on a device runs."""
        if self.devices is not None:
            self.last = device


RUN = Run()


def carry(x: Tensor, device: Any) -> Tensor:
    """Return a tensor on a device; the copy goes through devshim's copy engine."""
    return x if x.device == device or x.device.type == "meta" else activations.carry(x, DEVICES.get(device, device))


_CROSSING = frozenset({"to", "type_as", "cpu", "cuda", "copy_", "set_", "backward", "__get__", "__set__"})
"""Functions that concern devices themselves, or do not read values."""
_SHAPE_OF = ("view_as", "reshape_as", "expand_as")
_STATISTICS = ("batch_norm", "instance_norm")
"""Functions that write to their second argument."""


class Meeting(TorchFunctionMode):  # type: ignore[misc]  # PyTorch is Any to the type checker
    """Function mode that brings the tensors of every call to one device."""

    def __enter__(self) -> Any:
        RUN.meeting = True
        return super().__enter__()

    def __exit__(self, *failure: object) -> None:
        RUN.meeting = False
        super().__exit__(*failure)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = kwargs or {}
        if _disagree(args, options):
            name = getattr(func, "__name__", "")
            device = None if name in _CROSSING or name in _SHAPE_OF else _where(name, args, options)
            if device is not None:
                args, options = pytree.tree_map_only(
                    torch.Tensor, lambda x: x if _is_number(x) else carry(x, device), (args, options)
                )
        return func(*args, **options)


def _disagree(args: Any, options: dict[str, Any]) -> bool:
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
            if isinstance(x, torch.Tensor) and not _is_number(x):
                yield x


def _is_number(x: Tensor) -> bool:
    """Return True if a tensor is a number on the host, which PyTorch accepts with tensors of any device."""
    return bool(x.dim() == 0 and x.device.type == "cpu")


def _where(name: str, args: Any, options: dict[str, Any]) -> Any:
    """Return the device on which a call must compute; None to leave it to PyTorch."""
    found = list(_tensors(args, options))
    written = _written(name, args, options)
    if written is not None:
        return written.device
    device = next((x.device for x in found if isinstance(x, torch.nn.Parameter)), None)
    if device is not None:
        RUN.ran(device)
        return device
    devices = [x.device for x in found]
    if RUN.last in devices:
        return RUN.last
    return next((device for device in reversed(devices) if device in (RUN.devices or {})), None)


def _written(name: str, args: Any, options: dict[str, Any]) -> Any:
    """Return the tensor that a call writes to, or None."""
    if options.get("out") is not None:
        found = options["out"]
    elif name in _STATISTICS:
        found = options.get("running_mean", args[1] if len(args) > 1 else None)
    elif name == "__setitem__" or name.startswith("__i") or (name.endswith("_") and not name.endswith("__")):
        found = args[0] if args else None
    else:
        return None
    return found[0] if isinstance(found, (list, tuple)) else found
