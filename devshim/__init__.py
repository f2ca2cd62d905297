"""One Device/Placement API that behaves the same on PyTorch, TensorFlow, MXNet, PaddlePaddle, JAX and NumPy.

>>> import devshim as ds
>>> ds.use("numpy")
>>> ds.device("cuda:1")
Device('gpu', 1)

Importing devshim imports no framework and not even NumPy: devices and errors are here from the start, and the rest is
loaded when it is first named (PEP 562), all of it with the first framework.
"""

from __future__ import annotations

from devshim._spec import device
from devshim.device import Device, cpu, gpu
from devshim.errors import (
    AlreadyStartedError,
    ArgumentError,
    BackendBrokenError,
    BackendConflictError,
    BackendError,
    BackendNotFoundError,
    CheckpointError,
    ConversionError,
    CopyNeededError,
    DeviceError,
    DeviceFailedError,
    DeviceMismatchError,
    DeviceNotFoundError,
    DeviceSpecError,
    DevshimError,
    NotATensorError,
    OutOfMemoryError,
    PlacementError,
    SimulationError,
    TracingError,
    TransferError,
    UnsupportedError,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    from devshim import random
    from devshim._cards import Fault
    from devshim._context import backends, framework, use, using
    from devshim._explain import explain
    from devshim._left_behind import NotMovedWarning
    from devshim._queries import describe, device_count, devices, require, try_all_gpus, try_gpu
    from devshim.checkpoints import load, save
    from devshim.conversion import convert
    from devshim.creation import (
        arange,
        asarray,
        empty,
        empty_like,
        eye,
        full,
        full_like,
        linspace,
        ones,
        ones_like,
        zeros,
        zeros_like,
    )
    from devshim.guards import TransferWarning, guard
    from devshim.info import BackendInfo, DeviceInfo, MemoryInfo
    from devshim.ledger import Transfer, TransferLog, transfers
    from devshim.metrics import MetricLog
    from devshim.placement import Placement, placement_of
    from devshim.runtime import empty_cache, memory, memory_policy, set_visible_devices, shrink_batch, synchronize
    from devshim.scopes import on, require_same_device, run, same_device, set_device
    from devshim.several import all_reduce_, broadcast, gather, parallel, replicate, split
    from devshim.simulation import simulate
    from devshim.tensors import copy, device_of, from_numpy, place, to_numpy

    F = TypeVar("F")

__version__ = "0.1.0"

_LAZY = {
    "Fault": "devshim._cards",
    **dict.fromkeys(("copy", "device_of", "from_numpy", "place", "to_numpy"), "devshim.tensors"),
    **dict.fromkeys(("on", "require_same_device", "run", "same_device", "set_device"), "devshim.scopes"),
    **dict.fromkeys(("backends", "framework", "use", "using"), "devshim._context"),
    **dict.fromkeys(("describe", "device_count", "devices"), "devshim._queries"),
    **dict.fromkeys(("require", "try_all_gpus", "try_gpu"), "devshim._queries"),
    "explain": "devshim._explain",
    "NotMovedWarning": "devshim._left_behind",
    **dict.fromkeys(("Placement", "placement_of"), "devshim.placement"),
    "simulate": "devshim.simulation",
    **dict.fromkeys(("BackendInfo", "DeviceInfo", "MemoryInfo"), "devshim.info"),
    **dict.fromkeys(("arange", "asarray", "empty", "empty_like", "eye", "full", "full_like"), "devshim.creation"),
    **dict.fromkeys(("linspace", "ones", "ones_like", "zeros", "zeros_like"), "devshim.creation"),
    **dict.fromkeys(("empty_cache", "memory", "memory_policy"), "devshim.runtime"),
    **dict.fromkeys(("set_visible_devices", "shrink_batch", "synchronize"), "devshim.runtime"),
    **dict.fromkeys(("all_reduce_", "broadcast", "gather", "parallel", "replicate", "split"), "devshim.several"),
    "convert": "devshim.conversion",
    **dict.fromkeys(("load", "save"), "devshim.checkpoints"),
    "MetricLog": "devshim.metrics",
    **dict.fromkeys(("TransferWarning", "guard"), "devshim.guards"),
    **dict.fromkeys(("Transfer", "TransferLog", "transfers"), "devshim.ledger"),
}

__all__ = [
    "AlreadyStartedError",
    "ArgumentError",
    "BackendBrokenError",
    "BackendConflictError",
    "BackendError",
    "BackendInfo",
    "BackendNotFoundError",
    "CheckpointError",
    "ConversionError",
    "CopyNeededError",
    "Device",
    "DeviceError",
    "DeviceFailedError",
    "DeviceInfo",
    "DeviceMismatchError",
    "DeviceNotFoundError",
    "DeviceSpecError",
    "DevshimError",
    "Fault",
    "MemoryInfo",
    "MetricLog",
    "NotATensorError",
    "NotMovedWarning",
    "OutOfMemoryError",
    "Placement",
    "PlacementError",
    "SimulationError",
    "TracingError",
    "Transfer",
    "TransferError",
    "TransferLog",
    "TransferWarning",
    "UnsupportedError",
    "__version__",
    "all_reduce_",
    "arange",
    "asarray",
    "backends",
    "broadcast",
    "convert",
    "copy",
    "cpu",
    "describe",
    "device",
    "device_count",
    "device_of",
    "devices",
    "empty",
    "empty_cache",
    "empty_like",
    "explain",
    "eye",
    "framework",
    "from_numpy",
    "full",
    "full_like",
    "gather",
    "gpu",
    "guard",
    "linspace",
    "load",
    "memory",
    "memory_policy",
    "on",
    "ones",
    "ones_like",
    "parallel",
    "place",
    "placement_of",
    "random",
    "replicate",
    "require",
    "require_same_device",
    "run",
    "same_device",
    "save",
    "set_device",
    "set_visible_devices",
    "shrink_batch",
    "simulate",
    "split",
    "synchronize",
    "to_numpy",
    "transfers",
    "try_all_gpus",
    "try_gpu",
    "use",
    "using",
    "zeros",
    "zeros_like",
]


class _AsItIs:
    """The mark of `paddle.jit.not_to_static`, which cannot be called without importing Paddle.

    It counts until Paddle's adapter, which the first call loads, has told Paddle of the whole package; the compiler
    that reads bytecode instead of source ("SOT") needs none.
    """

    not_convert = True  # what Paddle 2.6 asks for

    def need_transform(self, mode: Any) -> bool:
        return bool(mode.name != "AST")

    def need_capture_control_flow(self) -> bool:
        return False


def _kept_as_it_is(found: F) -> F:
    """Keep a function, or those of a class, from compilers that would rewrite its source."""
    for member in (found, *vars(found).values()):
        each = getattr(member, "__func__", member)  # of a class method
        if type(each) is type(_kept_as_it_is) and each.__module__.startswith("devshim"):
            each.___jit_transform_options___ = each.__jst_not_to_static = _AS_IT_IS  # type: ignore[attr-defined]
    return found


_AS_IT_IS = _AsItIs()
for _here in (device, Device, cpu, gpu):
    _kept_as_it_is(_here)


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name == "random":
        return import_module("devshim.random")
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'devshim' has no attribute {name!r}")
    found = _kept_as_it_is(getattr(import_module(module), name))
    globals()[name] = found
    return found


def _load_rest() -> None:
    """Load what is left when a framework has been, and do without `__getattr__` from then on.

    CPython (3.11 to 3.13) looks names up more quickly in a module that has none: 35 ns for each ``ds.place``.  It stays
    where this happens while one of our modules is being loaded, which those that are left may need.
    """
    import sys

    ours = [module for name, module in list(sys.modules.items()) if name.startswith("devshim.")]
    if any(getattr(getattr(module, "__spec__", None), "_initializing", False) for module in ours):
        return
    for name in __all__:
        if name not in globals():
            __getattr__(name)
    globals().pop("__getattr__", None)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
