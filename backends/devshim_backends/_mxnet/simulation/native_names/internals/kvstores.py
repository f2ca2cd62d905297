"""The kvstore ``nccl`` on simulated GPUs: ``device`` adds up the same arrays, and a build for CPUs has it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from devshim_backends._mxnet.simulation.native_names.names import number_of

__all__ = ["FUNCTIONS"]

_NCCL, _DEVICE = b"nccl", b"device"
_handles: set[int] = set()
"""The handles of the kvstores that a program made as ``nccl``."""


def _create(call: Any) -> Any:
    def create(name: Any, out: Any) -> Any:
        is_nccl = getattr(name, "value", name) == _NCCL
        failed = call(_DEVICE if is_nccl else name, out)
        if is_nccl and not failed:
            _handles.add(number_of(out._obj))
        return failed

    return create


def _get_type(call: Any) -> Any:
    def get_type(handle: Any, out: Any) -> Any:
        failed = call(handle, out)
        if number_of(handle) in _handles:
            out._obj.value = _NCCL
        return failed

    return get_type


def _free(call: Any) -> Any:
    def free(handle: Any) -> Any:
        _handles.discard(number_of(handle))
        return call(handle)

    return free


FUNCTIONS: Mapping[str, Any] = MappingProxyType(
    {"MXKVStoreCreate": _create, "MXKVStoreGetType": _get_type, "MXKVStoreFree": _free}
)
"""Function of the library -> what makes its replacement."""
