"""Putting another tensor's data under a tensor that others hold.

Requirements this module answers:

* The same object stays, with its name, its hooks, its gradient, and whether it wants one.
* What is read is free of that object: ``detach()`` shares more than the data in PaddlePaddle (2.6 to 3.3), namely what
  says where they are, so that a detached parameter moves when the parameter does, and could bring nothing back.
* Nothing is allocated, and the writes can come in any order: a parameter and its gradient may be apart for a while.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devshim_backends._paddle.devices import core

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.contract.backend import Tensor

    Reader = Callable[[], Tensor]
    Writer = Callable[[Tensor], None]

_UNDEFINED = 0
"""The kind of place (AllocationType) of what has no memory."""

__all__ = ["alias", "exchange", "is_made", "let_go", "of_gradient"]


def alias(data: Any) -> Tensor:
    """Return a new tensor over the data that a ``core.DenseTensor`` has now."""
    made = core.eager.Tensor()
    made.get_tensor()._share_data_with(data)
    return made


def exchange(tensor: Tensor) -> tuple[Reader, Writer]:
    """Return what reads the data of a tensor, and what puts another tensor's in its place."""
    return _both(tensor.get_tensor)


def of_gradient(parameter: Tensor) -> tuple[Reader, Writer]:
    """The same for a parameter's gradient; of one that has few rows (``Embedding(sparse=True)``), for its values."""
    gradient = parameter.grad
    if gradient.is_selected_rows():
        return _both(lambda: gradient.get_selected_rows().get_tensor())
    return _both(gradient.get_tensor)


def let_go(layer: Any) -> Callable[[], None]:
    """Have the block that a recurrent layer's weights were cut from hold no more than one of them, where they left.

    cuDNN wants them in one block; elsewhere nothing reads it. Paddle then makes the block at each call, and
    ``layer.flatten_parameters()`` makes it once. Returns what takes it back.
    """
    flat = getattr(layer, "_flat_weight", None)
    if not flat or flat[0]._is_shared_buffer_with(layer._all_weights[0]):
        return lambda: None
    data, before = flat[0].get_tensor(), alias(flat[0].get_tensor())
    data._share_data_with(layer._all_weights[0].get_tensor())
    return lambda: data._share_data_with(before.get_tensor())


def is_made(tensor: Tensor) -> bool:
    """Whether a tensor has memory: not a recurrent layer's state of dropout before its first use, say."""
    if tensor._is_initialized() or 0 not in tensor.shape:
        return bool(tensor._is_initialized())
    try:  # an empty tensor says that it is not initialized, whether or not it has memory
        return bool(tensor.place._type() != _UNDEFINED)
    except RuntimeError:  # what Paddle 2.6 says of the place of what has none
        return False


def _both(data: Callable[[], Any]) -> tuple[Reader, Writer]:
    def write(new: Tensor) -> None:
        data()._share_data_with(new.get_tensor())

    return lambda: alias(data()), write
