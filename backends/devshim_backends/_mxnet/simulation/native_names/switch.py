"""Switching MXNet's own names for GPUs on and off: replaced functions of its library, and what its build supports."""

from __future__ import annotations

import re
from ctypes import c_char_p, c_int
from functools import partial
from typing import TYPE_CHECKING, Any

import mxnet as mx
from mxnet.base import _LIB

from devshim.devices import host
from devshim.devices.device import Device
from devshim.errors import messages
from devshim.simulation.patching import Patches
from devshim_backends._mxnet.internals.native import IS_2
from devshim_backends._mxnet.simulation import hooks
from devshim_backends._mxnet.simulation.native_names import names, saved_devices
from devshim_backends._mxnet.simulation.native_names.internals import kvstores
from devshim_backends._mxnet.simulation.native_names.names import (
    current_backend,
    from_library,
    number_of,
    to_library,
    to_library_text,
    to_program_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim_backends._mxnet.tensors import MxnetTensors

_CPU, _GPU = 1, 2
_PLACED = {
    "MXNDArrayCreate": 2,
    "MXNDArrayCreateEx": 2,
    "MXNDArrayCreate64": 2,
    "MXNDArrayCreateEx64": 2,
    "MXNDArrayCreateSparseEx": 3,
    "MXNDArrayCreateSparseEx64": 3,
    "MXRandomSeedContext": 1,
    "MXExecutorSimpleBindEx": 1,
    "MXExecutorSimpleBindEx64": 1,
    "MXExecutorBindEX": 1,
    "MXExecutorReshapeEx": 2,
    **({"MXInvokeCachedOp": 3} if IS_2 else {}),
}
"""Function of the library -> the position of the kind of a device among its arguments; the index follows it.

After these, an executor's function has the devices of groups of symbols (``group2ctx``): their number, their names, and
arrays of kinds and indices."""
_KIND_ONLY = {"MXOptimizeForBackend": 2, "MXQuantizeSymbol": 2}
"""Function of the library -> the position of the kind of a device, which has no index."""
_FEATURES = ("CUDA", "CUDNN", "NCCL")
"""What programs find in the build: MXNet's builds for CUDA have cuDNN, whose operators the CPU computes, and NCCL."""
_NO_MEMORY = re.compile(rb"Memory allocation failed|Failed to allocate")
_DEVICE = re.compile(rb"\bcpu\(\d+\)")

_patches = Patches()


def install(backend: MxnetTensors) -> None:
    """Let MXNet's names for GPUs mean the simulated GPUs of this backend."""
    names.set_backend(backend)
    try:
        _replace_functions()
        _patches.replace(mx.operator, "py_str", to_program_text)  # the device of a CustomOpProp
        _show_features()
    except BaseException:
        uninstall()
        raise
    hooks.TO_LIBRARY = to_library_text


def uninstall() -> None:
    """Let them mean what they mean to MXNet itself."""
    hooks.TO_LIBRARY = None
    _patches.undo()
    names.set_backend(None)


# ---------------------------------------------------------------------- the functions of the library
def _replace_functions() -> None:
    for name, position in _PLACED.items():
        _replace(name, partial(_place, position=position, grouped=name.startswith("MXExecutor")))
        if name.startswith("MXNDArrayCreate"):  # allocates immediately, unless told to wait
            _replace(name, partial(_report_full, position=position))
    for name, position in _KIND_ONLY.items():
        _replace(name, partial(_place_kind, position=position))
    for name, make in (*_QUESTIONS.items(), *saved_devices.replacements(to_library, from_library)):
        _replace(name, make)


def _replace(name: str, make: Callable[[Any], Any]) -> None:
    """Replace a function of the library by ``make(function)``; a release may lack it."""
    function = getattr(_LIB, name, None)
    if function is not None:
        _patches.replace(_LIB, name, make(function))


def _place(call: Any, *, position: int, grouped: bool) -> Any:
    def call_translated(*args: Any) -> Any:
        kind, index = to_library(number_of(args[position]), number_of(args[position + 1]))
        if grouped:
            count, _, kinds, indices = args[position + 2 : position + 6]
            for i in range(number_of(count)):
                kinds[i], indices[i] = to_library(kinds[i], indices[i])
        return call(*args[:position], c_int(kind), c_int(index), *args[position + 2 :])

    return call_translated


def _report_full(call: Any, *, position: int) -> Any:
    """Return a function that makes an array, and raises the error of a full GPU if the host lacks the memory."""

    def create(*args: Any) -> Any:
        failed = call(*args)
        if failed and number_of(args[position]) == _GPU and _NO_MEMORY.search(_LIB.MXGetLastError()):
            backend = current_backend()
            assert backend is not None
            raise messages.out_of_memory(backend, Device("gpu", number_of(args[position + 1])), None)
        return failed

    return create


def _place_kind(call: Any, *, position: int) -> Any:
    def call_translated(*args: Any) -> Any:
        kind = args[position]
        number = kind._obj if hasattr(kind, "_obj") else kind  # a pointer, as `byref` makes it
        if number_of(number) == _GPU:
            number.value = _CPU
        return call(*args)

    return call_translated


def _get_context(call: Any) -> Any:
    def get_context(handle: Any, kind: Any, index: Any) -> Any:
        failed = call(handle, kind, index)
        kind._obj.value, index._obj.value = from_library(kind._obj.value, index._obj.value)
        return failed

    return get_context


def _count(call: Any) -> Any:
    def count(number: Any) -> int:
        backend = current_backend()
        number._obj.value = 0 if backend is None else backend.simulated
        return 0

    return count


def _get_memory(call: Any) -> Any:
    """Return the replacement for the memory of a GPU; one without a limit has as much as the host."""

    def get_memory(index: Any, free: Any, total: Any) -> int:
        number = number_of(index)
        to_library(_GPU, number)
        backend = current_backend()
        assert backend is not None
        info = backend.memory(Device("gpu", number))
        size = info.total if info.total is not None else host.memory().total or 0
        free._obj.value, total._obj.value = max(size - (info.used or 0), 0), size
        return 0

    return get_memory


def _empty_cache(call: Any) -> Any:
    def empty_cache(kind: Any, index: Any) -> Any:
        if number_of(kind) == _GPU:
            to_library(_GPU, number_of(index))
            return 0  # a simulated GPU has no cache
        return call(kind, index)

    return empty_cache


def _last_error(call: Any) -> Any:
    """Return the text of an error with the program's names of devices: symbols and executors write the library's."""

    def last_error() -> bytes:
        return _DEVICE.sub(lambda found: to_program_text(found[0]).encode(), call() or b"")

    return last_error


def _create_symbol(call: Any) -> Any:
    def create_symbol(creator: Any, count: Any, keys: Any, values: Any, out: Any) -> Any:
        number = number_of(count)
        if any(keys[i] == b"ctx" for i in range(number)):
            texts = [values[i] for i in range(number)]
            values = (c_char_p * number)(
                *[
                    to_library_text(text.decode()).encode() if keys[i] == b"ctx" else text
                    for i, text in enumerate(texts)
                ]
            )
        return call(creator, count, keys, values, out)

    return create_symbol


_QUESTIONS = {
    "MXNDArrayGetContext": _get_context,
    "MXGetGPUCount": _count,
    "MXGetGPUMemoryInformation64": _get_memory,
    "MXGetGPUMemoryInformation": _get_memory,
    "MXStorageEmptyCache": _empty_cache,
    "MXSymbolCreateAtomicSymbol": _create_symbol,
    "MXGetLastError": _last_error,
    **kvstores.FUNCTIONS,
}


# ---------------------------------------------------------------------- what the build supports
def _show_features() -> None:
    """Say that this build supports CUDA and its libraries."""
    features = {name: mx.runtime.Feature(name.encode(), True) for name in _FEATURES}
    own = mx.runtime.feature_list

    def feature_list() -> list[Any]:
        return [features.get(each.name, each) for each in own()]

    feature_list.__doc__ = own.__doc__
    for name, feature in features.items():
        _patches.replace_item(mx.runtime.Features(), name, feature)
    _patches.replace(mx.runtime, "feature_list", feature_list)
