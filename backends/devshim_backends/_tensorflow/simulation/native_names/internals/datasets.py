"""Datasets that copy to a GPU: they pass a device's name to C++, as an attribute or as text in a tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.data.experimental.ops import prefetching_ops
from tensorflow.python.data.ops import multi_device_iterator_ops
from tensorflow.python.distribute import device_util

from devshim_backends._tensorflow.simulation.native_names.internals.clusters import CLUSTER
from devshim_backends._tensorflow.simulation.native_names.names import logical_name, native_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.simulation.patching import Patches
    from devshim_backends._tensorflow.simulation.simulate import TensorflowSimulation

__all__ = ["install"]

_ITERATORS = (multi_device_iterator_ops.MultiDeviceIterator, multi_device_iterator_ops.OwnedMultiDeviceIterator)


def install(patches: Patches, backend: TensorflowSimulation) -> None:
    """Translate the devices of ``tf.data.experimental.prefetch_to_device``, ``copy_to_device`` and strategies."""
    cls = prefetching_ops._CopyToDeviceDataset
    patches.replace(cls, "__init__", _wrap_copy(cls.__init__))
    for cls in _ITERATORS:
        patches.replace(cls, "__init__", _wrap_devices(cls.__init__))
        patches.replace(cls, "get_next", _wrap_device(cls.get_next))


def _logical(device: Any) -> Any:
    text = native_text(device)
    if text is None:
        return device
    scope = tf.DeviceSpec.from_string(device_util.current() or "")  # in a cluster, it may be of another process
    full = scope if scope.job else tf.DeviceSpec.from_string(CLUSTER.here)
    return full.make_merged_spec(tf.DeviceSpec.from_string(logical_name(text))).to_string()


def _wrap_copy(original: Callable[..., None]) -> Callable[..., None]:
    def create(self: Any, dataset: Any, target_device: Any, source_device: Any = "/cpu:0") -> None:
        original(self, dataset, _logical(target_device), _logical(source_device))

    return create


def _wrap_devices(original: Callable[..., None]) -> Callable[..., None]:
    def create(self: Any, dataset: Any = None, devices: Any = None, *args: Any, **kwargs: Any) -> None:
        given = None if devices is None else [_logical(each) for each in devices]
        original(self, dataset, given, *args, **kwargs)

    return create


def _wrap_device(original: Callable[..., Any]) -> Callable[..., Any]:
    def read(self: Any, device: Any = None) -> Any:
        return original(self, _logical(device))

    return read
