"""The backend of ``torch.distributed`` that a program gets on cards, and the backend that serves it here."""

from __future__ import annotations

from typing import Any

import torch
from torch import distributed

from devshim_backends._torch.simulation.internals.state import shown_count

__all__ = ["default_backend", "is_nccl", "require_device", "served_by_gloo"]

_UNDEFINED = "undefined"
"""PyTorch's name for the backend of a program that names neither a backend nor a device; on cards, nccl serves it."""


def default_backend(device: Any) -> str:
    """Return the backend that a program gets if it names none: that of its device, or of the accelerator."""
    if device is None:
        return _UNDEFINED if shown_count() else "gloo"
    return str(distributed.Backend.default_device_backend_map.get(device.type, "gloo"))


def is_nccl(requested: str | None) -> bool:
    """Return True if nccl would serve a requested backend on cards."""
    return requested is not None and ("nccl" in requested or requested == _UNDEFINED)


def served_by_gloo(requested: str) -> str:
    """Return a backend with gloo for nccl, which serves only the device ``cuda``."""
    return "cuda:gloo" if requested in ("nccl", _UNDEFINED) else requested.replace("nccl", "gloo")


def require_device(device: Any) -> Any:
    """Return the argument ``device_id`` as a device; refuse one that does not exist, in PyTorch's words."""
    if isinstance(device, int):
        device = torch.device("cuda", device)
    if device is None or device.type == "cpu":
        return device
    if device.index is None:
        msg = "Please use a device_id with index."
        raise ValueError(msg)
    count = shown_count()
    if device.index >= count:
        msg = (
            f"device_id {device} is out of range. Please use a device index less than "
            f"the number of accelerators available: {count}."
        )
        raise ValueError(msg)
    return device
