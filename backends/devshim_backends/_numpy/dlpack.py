"""DLPack for NumPy: sharing arrays with other frameworks.

Requirements of this module:

* NumPy's DLPack does not support some dtypes, and some versions do not export read-only memory. These arrays are
  still shared if its bytes have another name that NumPy supports: bfloat16 as unsigned integers, bool before
  NumPy 1.25, read-only memory as writable memory.
* An array over another framework's memory is writable, unless that memory is declared read-only. NumPy makes the array
  read-only if its capsule cannot say (a capsule without a version; before 2.1, every capsule). `freeze` marks arrays
  that are read-only.
* When NumPy refuses a dtype, it drops the capsule while its exception is set. If the capsule's destructor is Python
  code (as in MXNet), the destructor fails on that exception and the call ends in `SystemError`. So devshim checks the
  dtype first.
* For a plain array, two attributes say all that matters: its flags and its dtype.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np

from devshim.contract.backend import Tensor
from devshim.contract.fast_paths import FastPaths
from devshim.devices.dtypes import numpy_dtype
from devshim.errors import ConversionError, messages
from devshim.transfers import dlpack
from devshim_backends._numpy.creation import HOST_MAKERS
from devshim_backends._numpy.random import HOST_MAKERS as HOST_DRAWS
from devshim_backends._numpy.tensors import NumpyTensors

_RELABELLED = {"bfloat16": "uint16"}
"""Maps a dtype that NumPy's DLPack does not support to the dtype under which NumPy exports its bytes."""
if np.lib.NumpyVersion(np.__version__) < "1.25.0":
    _RELABELLED["bool"] = "uint8"
_EXPORTED_KINDS = "iufc" if "bool" in _RELABELLED else "biufc"
"""The kinds of dtype that NumPy exports or refuses correctly without devshim's help."""

_DTYPES = [np.dtype(name) for name in dlpack.FORMS if name not in _RELABELLED]
_PLAIN = {each: (each.name, each.itemsize if each.alignment < each.itemsize else 1) for each in _DTYPES}
"""Maps each dtype that NumPy exports natively, in the machine's byte order, to its name and to an alignment in bytes.

The alignment is that of an element where NumPy accepts less (complex128: NumPy accepts 8 bytes, C++ needs 16), else 1.
"""
_IN_C_ORDER, _ALIGNED, _WRITABLE, _TO_BE_WRITTEN_BACK = 0x1, 0x100, 0x400, 0x2000  # NPY_ARRAY_... of its C interface
_PLAIN_FLAGS = _IN_C_ORDER | _ALIGNED | _WRITABLE
_FLAGS = _PLAIN_FLAGS | _TO_BE_WRITTEN_BACK


_word, _START = ctypes.c_size_t.from_address, object.__basicsize__
"""An array's address is the first field of its object (in all NumPy versions); `x.ctypes` takes ten times as long."""


def _starts_with_address(x: np.ndarray) -> bool:
    return bool(_word(id(x) + _START).value == x.ctypes.data)


_ADDRESS_IS_FIRST_FIELD = sys.implementation.name == "cpython" and all(
    map(_starts_with_address, (np.empty(3), np.empty(3)[1:]))
)
"""True if an array's address is the first field of its object in this interpreter."""


def _fast_export(x: np.ndarray, alignment: int) -> tuple[Any, str, tuple[int, ...]] | None:
    """Return a plain array's capsule, dtype name and shape, or None for other arrays (`FastPaths.dlpack_export`)."""
    plain = _PLAIN.get(x.dtype)
    if plain is None or x.flags.num & _FLAGS != _PLAIN_FLAGS:
        return None
    needed = alignment or plain[1]
    if needed > 1 and (_word(id(x) + _START).value if _ADDRESS_IS_FIRST_FIELD else x.ctypes.data) % needed:
        return None
    return x.__dlpack__(), plain[0], x.shape


class NumpyDlpack(NumpyTensors):
    """The mixin for DLPack. It exports arrays, and imports what `numpy.from_dlpack` can read."""

    has_readonly_tensors = True
    has_plain_arrays = True
    alignment = 1
    """An array knows whether it is aligned, and NumPy's loops respect that (2.4: all dtypes, at 0 to 64 bytes)."""
    fast_paths = FastPaths(
        host_type=np.ndarray,
        host_makers={**HOST_MAKERS, **HOST_DRAWS},
        host_copy={np.ndarray: np.ndarray.__copy__},
        numpy_copy={np.ndarray: np.ndarray.__copy__},
        dlpack_export={np.ndarray: _fast_export},
    )

    def to_dlpack(self, x: Tensor) -> Any:
        if isinstance(x, np.ma.MaskedArray):
            raise messages.masked()
        if any(stride < 0 for stride in x.strides):
            # torch.from_dlpack aborts the process on negative strides (pytorch/pytorch#188023).
            msg = "an array with negative strides cannot be shared"
            raise ConversionError(msg, "copy it first")
        if not x.dtype.isnative:
            msg = "DLPack supports only the machine's own byte order"
            raise ConversionError(msg, "convert the values first")
        if x.dtype.kind in _EXPORTED_KINDS and x.flags.writeable:
            return x
        name = x.dtype.name
        if name not in dlpack.FORMS:
            msg = f"DLPack does not support NumPy's dtype {name}"
            raise ConversionError(msg, "convert the values first")
        plain = x.view(_RELABELLED[name]) if name in _RELABELLED else x
        plain = plain if plain.flags.writeable else _writable(plain)
        return dlpack.Exporter((dlpack.CPU, 0), lambda stream: dlpack.set_dtype(plain.__dlpack__(), name))

    def from_dlpack(self, source: Any) -> Tensor:
        try:
            return _import(source)
        except Exception as error:
            raise messages.not_accepted(self, source, error) from error

    def freeze(self, x: Tensor) -> None:
        x.flags.writeable = False


class _WritableMemory:
    """An array's memory as writable memory in NumPy's array interface. It keeps the array alive."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array
        self.__array_interface__ = {**array.__array_interface__, "data": (array.ctypes.data, False)}


def _writable(array: np.ndarray) -> np.ndarray:
    """Return an array over the same memory that is not marked as read-only."""
    return np.asarray(_WritableMemory(array))


class _RelabellingProducer:
    """A producer that gives NumPy a dtype that it can read, under another name where necessary."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self.offered: dlpack.TensorInfo | None = None

    def __dlpack_device__(self) -> Any:
        kind, index = self._source.__dlpack_device__()
        return (int(kind), int(index or 0))

    def __dlpack__(self, **options: Any) -> Any:
        capsule = self._source.__dlpack__(**options)
        self.offered = offered = dlpack.read(capsule, versioned=True)
        if offered.dtype not in dlpack.FORMS:
            msg = f"it cannot read {offered.dtype} by DLPack"
            raise BufferError(msg)
        return dlpack.set_dtype(capsule, _RELABELLED[offered.dtype]) if offered.dtype in _RELABELLED else capsule


def _import(source: Any) -> np.ndarray:
    producer = _RelabellingProducer(source)
    array: np.ndarray = np.from_dlpack(producer)
    offered = producer.offered
    if offered is None:
        msg = "NumPy did not request a capsule"
        raise BufferError(msg)
    if not (array.flags.writeable or offered.read_only):
        array = _writable(array)
    return array.view(numpy_dtype(offered.dtype)) if offered.dtype in _RELABELLED else array
