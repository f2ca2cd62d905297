"""Letting tensors of several devices meet in one operator, while a model over several devices runs.

A parameter among an operator's tensors decides where it computes, else the part of the model that ran last; what is
written in place stays where it is.  All others are carried there, and gradients flow back.
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
    """The forward pass over several devices that is running in this thread."""

    devices: dict[Any, None] | None = None
    """The devices of the model's parts; None while none is running."""
    last: Any = None
    """The device of the part that ran last."""
    meeting: bool = False
    """Whether tensors can meet already."""

    def ran(self, device: Any) -> None:
        """Note that a part on a device runs."""
        if self.devices is not None:
            self.last = device


RUN = Run()


def carry(x: Tensor, device: Any) -> Tensor:
    """Return a tensor on a device, in the one way that every copy takes."""
    return x if x.device == device or x.device.type == "meta" else activations.carry(x, DEVICES.get(device, device))


_CROSSING = frozenset({"to", "type_as", "cpu", "cuda", "copy_", "set_", "backward", "__get__", "__set__"})
"""Functions that are about devices themselves, or about no values."""
_SHAPE_OF = ("view_as", "reshape_as", "expand_as")
_STATISTICS = ("batch_norm", "instance_norm")
"""Functions that write to their second argument."""


class Meeting(TorchFunctionMode):  # type: ignore[misc]  # PyTorch is Any to the type checker
    """Brings the tensors of every call to one device, as long as it is entered."""

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
    """Whether a call's tensors are on several devices; asked of every call, of most with no for an answer."""
    first = None
    for x in _tensors(args, options):
        if first is None:
            first = x.device
        elif x.device != first:
            return True
    return False


def _tensors(args: Any, options: dict[str, Any]) -> Iterator[Tensor]:
    """The tensors of a call that have to be on one device, lists of them included."""
    for value in (*args, *options.values()) if options else args:
        for x in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(x, torch.Tensor) and not _is_number(x):
                yield x


def _is_number(x: Tensor) -> bool:
    """Whether a tensor is a number on the host, which PyTorch lets meet tensors of every device."""
    return bool(x.dim() == 0 and x.device.type == "cpu")


def _where(name: str, args: Any, options: dict[str, Any]) -> Any:
    """The device where a call shall compute, or None to leave it to PyTorch."""
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
    """The tensor that a call writes to, or None."""
    if options.get("out") is not None:
        found = options["out"]
    elif name in _STATISTICS:
        found = options.get("running_mean", args[1] if len(args) > 1 else None)
    elif name == "__setitem__" or name.startswith("__i") or (name.endswith("_") and not name.endswith("__")):
        found = args[0] if args else None
    else:
        return None
    return found[0] if isinstance(found, (list, tuple)) else found
