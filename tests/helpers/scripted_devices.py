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


def _to(x: torch.Tensor) -> torch.Tensor:
    return x.to("cuda:1")


def _to_current(x: torch.Tensor) -> torch.Tensor:
    return x.to("cuda")


def _to_device(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.device("cuda", 1))


def _to_dtype(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.device("cuda"), torch.float16)


def _to_copy(x: torch.Tensor) -> torch.Tensor:
    return x.to("cuda:1", copy=True)


def _to_host(x: torch.Tensor) -> torch.Tensor:
    return x.to("cpu")


def _to_argument(x: torch.Tensor, device: torch.device | None = None) -> torch.Tensor:
    if device is None:
        device = torch.device("cuda")
    return x.to(device)


def _to_nothing(x: torch.Tensor, device: torch.device | None = None) -> torch.Tensor:
    return x.to(device=device)


def _to_chosen(x: torch.Tensor) -> torch.Tensor:
    return x.to("cuda:1" if float(x.sum()) > 0 else "cpu")


def _cuda(x: torch.Tensor) -> torch.Tensor:
    return x.cuda()


def _tensor(x: torch.Tensor) -> torch.Tensor:
    return torch.tensor([1.0, 2.0], device=torch.device("cuda"), requires_grad=True)


def _number(x: torch.Tensor) -> torch.Tensor:
    return torch.tensor(2, device="cuda:1")


def _as_tensor(x: torch.Tensor) -> torch.Tensor:
    return torch.as_tensor([1.0, 2.0], device="cuda") + torch.as_tensor(x, device=torch.device("cuda"))


def _ones(x: torch.Tensor) -> torch.Tensor:
    return torch.ones(2, device="cuda") + torch.zeros_like(x, device=torch.device("cuda"))


MOVES = {
    each.__name__.removeprefix("_"): each
    for each in (
        *(_to, _to_current, _to_device, _to_dtype, _to_copy, _to_host, _to_argument, _to_nothing, _to_chosen),
        *(_cuda, _tensor, _number, _as_tensor, _ones),
    )
}
"""Functions that move a tensor to a card, or make one there."""


def to_missing_card(x: torch.Tensor) -> torch.Tensor:
    """Move a tensor to a card that does not exist."""
    return x.to("cuda:7")


def pins(x: torch.Tensor) -> tuple[bool, bool, torch.Tensor]:
    """Return True if a tensor is pinned, and if a pinned copy of it is, and the copy."""
    pinned = x.pin_memory()
    return x.is_pinned(), pinned.is_pinned(), pinned.pin_memory()


def makes_pinned(x: torch.Tensor) -> list[torch.Tensor]:
    """Make pinned tensors."""
    found = [torch.full([2], 3.0, pin_memory=True), torch.zeros_like(x, dtype=torch.int32, pin_memory=True)]
    if x.is_pinned():
        return found
    made = torch.empty([2], pin_memory=True)
    made[:] = 4
    return found + [made, x.new_ones([1], pin_memory=True)]  # noqa: RUF005 - TorchScript knows no other way


def makes_pinned_if(pinned: bool) -> torch.Tensor:
    """Make a tensor that may be pinned."""
    return torch.empty([2], pin_memory=pinned)
