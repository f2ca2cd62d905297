"""Replacing a tensor's data while its object stays, and refusing tensors for which that is impossible.

``tensor.data = other`` keeps the object, its hooks and ``requires_grad``. PyTorch refuses a gradient on a different
device than its parameter, so the gradient is detached from the parameter while the devices differ. Therefore writes can
happen in any order, and can be undone in any order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from devshim.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.contract.backend import Tensor


def exchange(tensor: Tensor, after: Callable[[], None] | None = None) -> Callable[[Tensor], None]:
    """Return a function that puts another tensor's data under this object, and then calls ``after``."""

    def write(new: Tensor) -> None:
        tensor.data = new
        if after is not None:
            after()

    return write


class WithGradient:
    """A tensor and its gradient."""

    def __init__(self, tensor: Tensor, after: Callable[[], None] | None) -> None:
        self._tensor = tensor
        self._gradient = tensor.grad
        self._write = exchange(tensor, after)
        self._aside = False

    def write_tensor(self, new: Tensor) -> None:
        """Replace the tensor's data."""
        self._set_aside()
        self._write(new)
        self._put_back()

    def write_gradient(self, new: Tensor) -> None:
        """Replace the gradient's data."""
        self._set_aside()
        self._gradient.data = new
        self._put_back()

    def _set_aside(self) -> None:
        if self._tensor.grad is self._gradient:
            self._tensor.grad = None
            self._aside = True

    def _put_back(self) -> None:
        if self._aside and self._tensor.device == self._gradient.device:
            self._tensor.grad = self._gradient
            self._aside = False


def refuse(path: str, tensor: Tensor) -> None:
    """Refuse a tensor whose data cannot be replaced.

    Raises:
        UnsupportedError: The tensor is part of a graph, or is made of other tensors.
    """
    if not tensor.is_leaf:
        raise UnsupportedError(
            f"{path} is the result of a computation, and its graph cannot move to another device",
            "move before the forward pass, or detach it first",
        )
    if is_traceable_wrapper_subclass(tensor):
        raise UnsupportedError(
            f"{path} is a {type(tensor).__name__}, which consists of other tensors, so its memory cannot be swapped",
            "move the model before it is distributed or quantized",
        )


def refuse_frozen(module: object) -> None:
    """Refuse a frozen TorchScript module: its weights are in its code, where PyTorch's own ``to`` leaves them.

    Raises:
        UnsupportedError: The module is frozen.
    """
    if isinstance(module, torch.jit.ScriptModule) and not module._c.hasattr("training"):
        raise UnsupportedError(
            "a frozen TorchScript module stores its weights in its code, where they cannot be moved",
            "move the module first, then freeze it; or load it with torch.jit.load(..., map_location=...)",
        )
