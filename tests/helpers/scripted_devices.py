"""Functions that TorchScript compiles; it reads annotations as they are, so this file does not postpone them."""

from typing import Any, NamedTuple

import torch


class Both(NamedTuple):
    device: torch.device
    index: int


@torch.jit.ignore
def _name(device: torch.device) -> str:
    return str(device)


def answer(
    x: torch.Tensor, device: torch.device
) -> tuple[
    torch.device, list[torch.device], dict[str, torch.device], Both, torch.device | None, list[int], str, torch.Tensor
]:
    """Return the device of a tensor in each container that a script can return, and the tensor on another device."""
    both = Both(x.device, 1)
    return x.device, [x.device], {"x": x.device}, both, x.device, [1], _name(x.device), x.cpu().to(device)


class Where:
    """A class for a script; its instances are those of Python outside."""

    def __init__(self, x: torch.Tensor) -> None:
        self.device = x.device


def make_where(x: torch.Tensor) -> Any:
    """Return an instance of the class."""
    return Where(x)
