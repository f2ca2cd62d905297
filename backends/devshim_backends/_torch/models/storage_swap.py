"""Replacing a tensor's data while its object stays, and refusing tensors for which that is impossible.

``tensor.data = other`` keeps the object, its hooks and ``requires_grad``. PyTorch refuses a gradient on a different
device than its parameter, so the gradient is detached from the parameter while the devices differ. Therefore writes can
happen in any order, and can be undone in any order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from devshim.contract.models import Leaf
from devshim.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from devshim.contract.backend import Tensor


def data_setter(tensor: Tensor, after: Callable[[], None] | None = None) -> Callable[[Tensor], None]:
    """Return a function that puts another tensor's data under this object, and then calls ``after``."""

    def write(new: Tensor) -> None:
        tensor.data = new
        if after is not None:
            after()

    return write


class TensorWithGradient:
    """A tensor and its gradient."""

    def __init__(self, tensor: Tensor, after: Callable[[], None] | None) -> None:
        self._tensor = tensor
        self._gradient = tensor.grad
        self._write = data_setter(tensor, after)
        self._detached = False

    def write_tensor(self, new: Tensor) -> None:
        """Replace the tensor's data."""
        self._detach_gradient()
        self._write(new)
        self._attach_gradient()

    def write_gradient(self, new: Tensor) -> None:
        """Replace the gradient's data."""
        self._detach_gradient()
        self._gradient.data = new
        self._attach_gradient()

    def _detach_gradient(self) -> None:
        if self._tensor.grad is self._gradient:
            self._tensor.grad = None
            self._detached = True

    def _attach_gradient(self) -> None:
        if self._detached and self._tensor.device == self._gradient.device:
            self._tensor.grad = self._gradient
            self._detached = False


def leaves_of_tensor(
    path: str, kind: Any, tensor: Tensor, follows: Any = None, after: Callable[[], None] | None = None
) -> Iterator[Leaf]:
    """Yield the leaf of a tensor, then the leaf of its gradient."""
    require_movable(path, tensor)
    if tensor.grad is None:
        yield Leaf(path, kind, tensor.detach, data_setter(tensor, after), tensor, follows)
        return
    pair = TensorWithGradient(tensor, after)
    yield Leaf(path, kind, tensor.detach, pair.write_tensor, tensor, follows)
    yield Leaf(f"{path}.grad", "gradient", tensor.grad.detach, pair.write_gradient, tensor.grad, tensor)


def require_movable(path: str, tensor: Tensor) -> None:
    """Refuse a tensor whose data cannot be replaced.

    Raises:
        UnsupportedError: The tensor is part of a graph, or is made of other tensors.
    """
    if not tensor.is_leaf:
        msg = f"{path} is the result of a computation, and its graph cannot move to another device"
        raise UnsupportedError(msg, "move before the forward pass, or detach it first")
    if is_traceable_wrapper_subclass(tensor):
        msg = f"{path} is a {type(tensor).__name__}, which consists of other tensors, so its memory cannot be swapped"
        raise UnsupportedError(msg, "move the model before it is distributed or quantized")


def require_not_frozen(module: object) -> None:
    """Refuse a frozen TorchScript module: its weights are in its code, where PyTorch's own ``to`` leaves them.

    Raises:
        UnsupportedError: The module is frozen.
    """
    if isinstance(module, torch.jit.ScriptModule) and not module._c.hasattr("training"):
        msg = "a frozen TorchScript module stores its weights in its code, where they cannot be moved"
        raise UnsupportedError(
            msg,
            "move the module first, then freeze it; or load it with torch.jit.load(..., map_location=...)",
        )
