"""Storage swaps: putting the data of another tensor into a tensor object that a program already holds.

Requirements that this module meets:

* The object stays the same, with its name, its hooks, its gradient, and whether it needs one.
* What is read is independent of that object. In PaddlePaddle (3.0 to 3.3) ``detach()`` shares more than the data: it
  also shares the record of where the data are. A detached parameter moves when the parameter does, so it could not
  restore anything.
* Nothing is allocated, and the writes can come in any order: a parameter and its gradient may be on different devices
  for a while.
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
"""The kind of place (AllocationType) of a tensor without memory."""

__all__ = ["accessors", "alias", "gradient_accessors", "has_memory", "release_flat_weight"]


def alias(data: Any) -> Tensor:
    """Return a new tensor over the data that a ``core.DenseTensor`` has now."""
    made = core.eager.Tensor()
    made.get_tensor()._share_data_with(data)
    return made


def accessors(tensor: Tensor) -> tuple[Reader, Writer]:
    """Return a function that reads the data of a tensor, and one that swaps in another tensor's data."""
    return _make_accessors(tensor.get_tensor)


def gradient_accessors(parameter: Tensor) -> tuple[Reader, Writer]:
    """Return these functions for a parameter's gradient, or for its values if its rows are sparse (``Embedding``)."""
    gradient = parameter.grad
    if gradient.is_selected_rows():
        return _make_accessors(lambda: gradient.get_selected_rows().get_tensor())
    return _make_accessors(gradient.get_tensor)


def release_flat_weight(layer: Any) -> Callable[[], None]:
    """Free the buffer of which a recurrent layer's weights were slices, if they have moved out of it.

    The buffer's tensor gets the memory of the first weight instead. cuDNN needs the weights in one buffer, and nothing
    else reads it. Without it, Paddle makes a new one at each call; ``layer.flatten_parameters()`` makes it once.

    Returns:
        A function that undoes this.
    """
    flat = getattr(layer, "_flat_weight", None)
    if not flat or flat[0]._is_shared_buffer_with(layer._all_weights[0]):
        return lambda: None
    data, before = flat[0].get_tensor(), alias(flat[0].get_tensor())
    data._share_data_with(layer._all_weights[0].get_tensor())
    return lambda: data._share_data_with(before.get_tensor())


def has_memory(tensor: Tensor) -> bool:
    """Return True if a tensor has memory; for example, a recurrent layer's dropout state has none before its use."""
    if tensor._is_initialized() or 0 not in tensor.shape:
        return bool(tensor._is_initialized())
    try:  # an empty tensor reports that it is not initialized, whether or not it has memory
        return bool(tensor.place._type() != _UNDEFINED)
    except RuntimeError:  # Paddle 3.0 raises this for the place of a tensor without memory
        return False


def _make_accessors(data: Callable[[], Any]) -> tuple[Reader, Writer]:
    def write(new: Tensor) -> None:
        data()._share_data_with(new.get_tensor())

    return lambda: alias(data()), write
