"""MXNet's own names for GPUs, ``mx.gpu(1)`` and the like, for simulated GPUs (``ds.simulate(2, native_names=True)``).

A simulated GPU is a CPU for MXNet's C++ library: its ``cpu(1)`` is ``gpu(0)`` (see `simulate`).  Everything above the
library is Python, and every device crosses into it in one of these ways:

* As two numbers, the kind and the index: in the functions of `_PLACED`, and in ``MXNDArrayGetContext``, which returns
  them.  These attributes of the MXNet library object are replaced.
* As text, such as ``"gpu(1)"``, among the arguments of an operator: `hooks` translates it with `to_library_text`, and
  so does the replaced ``MXSymbolCreateAtomicSymbol`` for symbols.
* In saved bytes, as the device that an array was saved from (see `saved_devices`).
* As text that the library passes back: the device of a ``CustomOpProp``, in `to_program_text`.
* As a question: how many GPUs there are, how much memory they have, and what the build supports.

So the Python of MXNet has real ``gpu(1)`` devices in arrays, parameters, trainers and ``with`` blocks, and few of its
functions are replaced.  Requirements that this module meets:

* Every other CPU of a program, such as ``mx.cpu(1)``, is the host.  The library has them from ``cpu(65)`` on, behind
  all simulated GPUs, and the program sees the numbers that it wrote.
* A GPU that is not there is refused where it is first used, with an error that is both MXNet's and devshim's.
* The number of GPUs may change while native names are on: it is read at each call.
"""

from __future__ import annotations

from ctypes import byref, c_char_p, c_int
from functools import partial
from typing import TYPE_CHECKING, Any

import mxnet as mx
from mxnet.base import _LIB, check_call, py_str

from devshim.devices import host
from devshim.devices.device import Device
from devshim.errors import DeviceNotFoundError, UnsupportedError, joined
from devshim.registry import missing_devices
from devshim.simulation.patching import Patches
from devshim_backends._mxnet.native import IS_2
from devshim_backends._mxnet.simulation import hooks, saved_devices

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim_backends._mxnet.tensors import MxnetTensors

_CPU, _GPU = 1, 2
_AFTER_GPUS = 64
"""The library's CPUs up to this index may be simulated GPUs (`most_simulated_gpus`); a program's are behind them."""
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
_FEATURE = "CUDA"

_patches = Patches()
_backend: MxnetTensors | None = None


@joined
class MissingGpuError(DeviceNotFoundError, mx.MXNetError):  # type: ignore[misc]  # MXNet is Any to the type checker
    """The error for a GPU that is not there, which replaces MXNet's."""


def install(backend: MxnetTensors) -> None:
    """Let MXNet's names for GPUs mean the simulated GPUs of this backend."""
    global _backend
    _backend = backend
    try:
        _replace_functions()
        _patches.replace(mx.operator, "py_str", to_program_text)  # the device of a CustomOpProp
        _show_feature()
    except BaseException:
        uninstall()
        raise
    hooks.TO_LIBRARY = to_library_text


def uninstall() -> None:
    """Let them mean what they mean to MXNet itself."""
    global _backend
    hooks.TO_LIBRARY = None
    _patches.undo()
    _backend = None


# ---------------------------------------------------------------------- translation
def to_library(kind: int, index: int) -> tuple[int, int]:
    """Return the kind and the index of a program's device, as MXNet's library knows it.

    Raises:
        MissingGpuError: The GPU does not exist.
    """
    if kind == _GPU:
        backend = _backend
        if backend is None or not 0 <= index < backend.simulated:
            raise _missing(index)
        return _CPU, index + 1
    return (kind, index + _AFTER_GPUS) if kind == _CPU and index > 0 else (kind, index)


def from_library(kind: int, index: int) -> tuple[int, int]:
    """Return the kind and the index of the library's device, as the program knows it."""
    if kind != _CPU or index <= 0:
        return kind, index
    backend = _backend
    if backend is not None and index <= backend.simulated_or_removed:
        return _GPU, index - 1
    return kind, index - _AFTER_GPUS if index > _AFTER_GPUS else index


def to_library_text(text: str) -> str:
    """Return the text of a device, ``"gpu(1)"``, as the library knows it; any other text is returned as it is."""
    if text[1:4] != "pu(" or text[-1] != ")" or not text[4:-1].isdecimal() or text[0] not in "cg":
        return text
    kind, index = to_library(_GPU if text[0] == "g" else _CPU, int(text[4:-1]))
    return f"{'gpu' if kind == _GPU else 'cpu'}({index})"


def to_program_text(text: bytes) -> str:
    """Return the text of the library, with a simulated GPU's device as the program knows it."""
    found = str(py_str(text))
    if found[:4] != "cpu(" or not found[4:-1].isdecimal():
        return found
    kind, index = from_library(_CPU, int(found[4:-1]))
    return f"{'gpu' if kind == _GPU else 'cpu'}({index})"


def _missing(index: int) -> MissingGpuError:
    backend = _backend
    if backend is None or index < 0:
        return MissingGpuError(f"MXNet has no gpu({index})", "number GPUs from 0, as in mx.gpu(0)")
    error = missing_devices.not_found(backend, Device("gpu", index))
    last = backend.simulated - 1
    return MissingGpuError(error.problem, f"use mx.gpu({index if index <= last else last}), or simulate more GPUs")


def _number(value: Any) -> int:
    return int(getattr(value, "value", value))


# ---------------------------------------------------------------------- the functions of the library
def _replace_functions() -> None:
    for name, position in _PLACED.items():
        _replace(name, partial(_place, position=position, grouped=name.startswith("MXExecutor")))
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
    def placed(*args: Any) -> Any:
        kind, index = to_library(_number(args[position]), _number(args[position + 1]))
        if grouped:
            count, _, kinds, indices = args[position + 2 : position + 6]
            for i in range(_number(count)):
                kinds[i], indices[i] = to_library(kinds[i], indices[i])
        return call(*args[:position], c_int(kind), c_int(index), *args[position + 2 :])

    return placed


def _place_kind(call: Any, *, position: int) -> Any:
    def placed(*args: Any) -> Any:
        kind = args[position]
        number = kind._obj if hasattr(kind, "_obj") else kind  # a pointer, as `byref` makes it
        if _number(number) == _GPU:
            number.value = _CPU
        return call(*args)

    return placed


def _get_context(call: Any) -> Any:
    def get_context(handle: Any, kind: Any, index: Any) -> Any:
        failed = call(handle, kind, index)
        kind._obj.value, index._obj.value = from_library(kind._obj.value, index._obj.value)
        return failed

    return get_context


def _count(call: Any) -> Any:
    def count(number: Any) -> int:
        backend = _backend
        number._obj.value = 0 if backend is None else backend.simulated
        return 0

    return count


def _get_memory(call: Any) -> Any:
    """Return the replacement for the memory of a GPU; one without a limit has as much as the host."""

    def get_memory(index: Any, free: Any, total: Any) -> int:
        number = _number(index)
        to_library(_GPU, number)
        backend = _backend
        assert backend is not None
        info = backend.memory(Device("gpu", number))
        size = info.total if info.total is not None else host.memory().total or 0
        free._obj.value, total._obj.value = max(size - (info.used or 0), 0), size
        return 0

    return get_memory


def _to_dlpack(call: Any) -> Any:
    """Refuse to export memory of a simulated GPU: DLPack would name the host, and the importer compute there."""

    def to_dlpack(handle: Any, out: Any) -> Any:
        kind, index = c_int(), c_int()
        check_call(_LIB.MXNDArrayGetContext(handle, byref(kind), byref(index)))
        if kind.value == _GPU:
            msg = f"the array is on the simulated gpu({index.value}), which DLPack cannot name"
            raise UnsupportedError(msg, "use ds.convert(x, 'torch'), or copy it first: x.copyto(mx.cpu())")
        return call(handle, out)

    return to_dlpack


def _empty_cache(call: Any) -> Any:
    def empty_cache(kind: Any, index: Any) -> Any:
        if _number(kind) == _GPU:
            to_library(_GPU, _number(index))
            return 0  # a simulated GPU has no cache
        return call(kind, index)

    return empty_cache


def _create_symbol(call: Any) -> Any:
    def create_symbol(creator: Any, count: Any, keys: Any, values: Any, out: Any) -> Any:
        number = _number(count)
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
    "MXNDArrayToDLPack": _to_dlpack,
    "MXGetGPUCount": _count,
    "MXGetGPUMemoryInformation64": _get_memory,
    "MXGetGPUMemoryInformation": _get_memory,
    "MXStorageEmptyCache": _empty_cache,
    "MXSymbolCreateAtomicSymbol": _create_symbol,
}


# ---------------------------------------------------------------------- what the build supports
def _show_feature() -> None:
    """Say that this build supports CUDA; what else it supports, such as cuDNN, is not simulated."""
    feature = mx.runtime.Feature(_FEATURE.encode(), True)
    own = mx.runtime.feature_list

    def feature_list() -> list[Any]:
        return [feature if each.name == _FEATURE else each for each in own()]

    feature_list.__doc__ = own.__doc__
    _patches.replace_item(mx.runtime.Features(), _FEATURE, feature)
    _patches.replace(mx.runtime, "feature_list", feature_list)
