"""The CuPy functions that devshim calls, implemented with NumPy, for tests without a GPU.

It refuses what CuPy 14 refuses: an implicit ``numpy.asarray``, NumPy operands, and arrays of another GPU than the
current one. It computes on the host, and shows nothing about the speed or results of real CuPy.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from cupy import _machine, cuda
from cupy import random as random
from cupy._array import ndarray, to_array, wrap
from cupy.cuda import memory
from cupy.cuda.memory import POOL

__version__ = "14.2.0+stub"


def array(
    obj: Any,
    dtype: Any = None,
    copy: bool | None = True,
    order: str = "K",
    subok: bool = False,
    ndmin: int = 0,
    *,
    blocking: bool = False,
) -> ndarray:
    if isinstance(obj, ndarray):
        return obj if not copy and obj.device.id == _machine.current() else obj.copy()
    host = np.asarray(obj, dtype=dtype)
    if host.dtype.kind not in "biufc" and host.dtype.name != "bfloat16":
        raise ValueError(f"Unsupported dtype {host.dtype}")
    host = host.astype(host.dtype.newbyteorder("="), copy=False)
    memory.require(host.nbytes)
    if blocking or not _machine.LATE[0]:
        return to_array(np.array(host, order="C", copy=True))
    result = to_array(np.zeros(host.shape, host.dtype))
    _machine.stream().submit(lambda: np.copyto(result._a, host))  # reads when it is executed
    return result


def asarray(a: Any, dtype: Any = None, order: Any = None, *, copy: bool | None = None, blocking: bool = False) -> Any:
    return array(a, dtype, copy, blocking=blocking)


def asnumpy(a: Any) -> np.ndarray:
    return a.get() if isinstance(a, ndarray) else np.asarray(a)


def get_default_memory_pool() -> Any:
    return POOL


class _Holder:
    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, **options: Any) -> Any:
        return self._capsule


def from_dlpack(source: Any) -> ndarray:
    kind, gpu = source.__dlpack_device__()
    if kind != 2 or gpu != _machine.current():
        raise BufferError(f"memory of {(kind, gpu)}, and the current GPU is {_machine.current()}")
    capsule = source.__dlpack__(stream=cuda.get_current_stream().ptr, max_version=(1, 0))
    found = ndarray.__new__(ndarray)
    found._a, found._gpu, found._base = np.from_dlpack(_Holder(capsule)), gpu, source
    return found


for _name in dir(np):
    _found = getattr(np, _name)
    if _name.startswith("_") or _name in globals() or isinstance(_found, ModuleType):
        continue
    if callable(_found) and not isinstance(_found, type):
        _found = wrap(_found)
    globals()[_name] = _found

__all__ = [_name for _name in dir() if not _name.startswith("_")]
