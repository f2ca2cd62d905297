"""Handles of tensors that a session keeps (``get_session_handle``): they name GPUs, and logical CPUs in C++.

A handle is a text: the name of an operator, a number and a device, with ``;`` between them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from tensorflow.python.ops.session_ops import TensorHandle

from devshim_backends._tensorflow.simulation.native_names.names import logical_name, shown_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from devshim.simulation.patching import Patches

__all__ = [
    "TensorHandle",
    "deleted_handles",
    "install",
    "is_handle",
    "kept_tensors",
    "translate_feeds",
    "translate_handle",
]

_CREATORS = frozenset({"GetSessionHandle", "GetSessionHandleV2"})
_WITHOUT_BYTES = frozenset({tf.string, tf.resource, tf.variant})
_READERS = frozenset({"GetSessionTensor", "DeleteSessionTensor"})


def install(patches: Patches) -> None:
    """Let handles name the GPUs of the program."""
    owner = TensorHandle
    patches.replace(owner, "__init__", _wrap_create(owner.__init__))
    patches.replace(owner, "_get_resource_handle", _wrap_resource(owner._get_resource_handle))


def translate_feeds(feeds: dict[Any, Any]) -> dict[Any, Any]:
    """Return the values that a session feeds to references of tensors, with the handles that C++ knows."""
    return {ref: translate_handle(value) if is_handle(ref.deref()) else value for ref, value in feeds.items()}


def kept_tensors(fetches: Sequence[Any]) -> dict[int, Any]:
    """Return the tensors that a session may keep on a GPU for these results: position of the handle -> tensor."""
    found = {position: x.op.inputs[0] for position, x in enumerate(fetches) if x.op.type in _CREATORS}
    return {position: x for position, x in found.items() if x.dtype not in _WITHOUT_BYTES}


def deleted_handles(operators: Iterable[Any], feeds: dict[Any, Any]) -> list[str]:
    """Return the handles of the tensors that operators delete, from the values that a session feeds to them."""
    values = {ref.deref(): value for ref, value in feeds.items()}
    found = [values.get(op.inputs[0]) for op in operators if op.type == "DeleteSessionTensor"]
    return [tf.compat.as_str_any(np.asarray(value).item()) for value in found if value is not None]


def is_handle(x: Any) -> bool:
    """Return True if a tensor is the text of a handle that an operator reads."""
    return bool(x.dtype == tf.string) and any(op.type in _READERS for op in x.consumers())


def translate_handle(value: Any) -> Any:
    """Return a handle with the name that C++ knows."""
    array = np.asarray(value)
    if array.ndim or array.dtype.kind not in "OSU":  # TensorFlow refuses it
        return value
    text = array.item()
    return np.asarray(_rename(text.decode() if isinstance(text, bytes) else text, logical_name), dtype=object)


def _rename(handle: str, rename: Callable[[str], str]) -> str:
    """Return a handle with another name of its device."""
    start, separator, device = handle.rpartition(";")
    return f"{start}{separator}{rename(device)}"


def _wrap_create(original: Callable[..., None]) -> Callable[..., None]:
    def create(self: Any, handle: Any, *args: Any, **kwargs: Any) -> None:
        original(self, handle, *args, **kwargs)
        self._handle = _rename(self._handle, shown_name)

    return create


def _wrap_resource(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a replacement for the method that makes what a session feeds for a handle."""

    def resource_handle(self: Any) -> Any:
        result = original(self)
        result.name = _rename(self._handle, logical_name)
        result.device = logical_name(self._handle.rpartition(";")[2])
        return result

    return resource_handle
