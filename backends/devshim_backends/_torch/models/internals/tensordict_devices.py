"""The device that a `tensordict.nn.TensorDictParams` notes of its tensors: an attribute, which a move leaves stale.

The library's own ``to`` makes another module; its ``_apply``, which `Module.to` calls, sets the attribute as here.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["note_devices"]


def note_devices(module: Any) -> Callable[[], None] | None:
    """Let a dictionary of parameters, and those in it, note the device of their tensors; None for several devices.

    A dictionary that notes no device stays so.

    Returns:
        A function that undoes it, or None for another module.
    """
    params: Any = getattr(sys.modules.get("tensordict"), "TensorDictParams", None)
    if params is None or not isinstance(module, params):
        return None
    before = [(each, each.device) for each in _dictionaries(module._param_td)]
    for each, device in before:
        if device is not None:
            each.auto_device_()

    def undo() -> None:
        for each, device in before:  # the outer ones first: each call also sets those inside
            each._set_device(device)

    return undo


def _dictionaries(outer: Any) -> Iterator[Any]:
    """Yield a dictionary and those in it, the outer ones first."""
    pending = [outer]
    is_dictionary: Any = sys.modules["tensordict"].is_tensor_collection
    for each in pending:  # which grows
        yield each
        pending += [value for value in each.values() if is_dictionary(value)]
