"""The devices in files and pickles of MXNet, while native names of simulated GPUs are on.

MXNet saves an array with its device, and loads it to that device again. So does ``pickle``, and with it
``copy.deepcopy``. For a simulated GPU the library would write ``cpu(2)``, and a build without CUDA loads everything to
``cpu(0)``. Here the saved bytes have the name that the program uses, ``gpu(1)``, as on a machine with real GPUs: a
file from that machine loads to the same simulated GPU, and a file from here loads there.

An array is saved as a magic number, the number of its kind of storage, its shape, its device, its dtype and its values
(``NDArray::Save`` in ndarray.cc); sparse arrays also have the shape of their values, and their indices. A file is a
header and a list of arrays. Files in NumPy's formats, as ``npx.save`` of 2.0 writes them, have no devices.
"""

from __future__ import annotations

import mmap
import struct
from ctypes import addressof, byref, c_char
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mxnet as mx
from mxnet.base import _LIB, NDArrayHandle, check_call
from mxnet.ndarray.ndarray import _DTYPE_MX_TO_NP
from mxnet.ndarray.sparse import _ndarray_cls

from devshim_backends._mxnet.internals.native import numpy_shapes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Translate = Callable[[int, int], tuple[int, int]]

_MAGIC, _MAGIC_NUMPY, _MAGIC_FILE = 0xF993FAC9, 0xF993FACA, 0x112
_GPU = 2
_INDEX_ARRAYS = {0: 0, 1: 1, 2: 2}
"""The number of a kind of storage (dense, row_sparse, csr) -> its number of index arrays."""


class _Reader:
    """A position in saved bytes."""

    def __init__(self, data: Any, position: int = 0) -> None:
        self.data, self.position = data, position

    def read(self, code: str) -> int:
        value: int = struct.unpack_from(f"<{code}", self.data, self.position)[0]
        self.position += struct.calcsize(code)
        return value

    def elements(self) -> int | None:
        """Skip a shape, and return its number of elements; None for an unknown shape."""
        ndim, size = self.read("i"), 1
        for _ in range(ndim):
            size *= self.read("q")
        return None if ndim < 0 else size

    def array(self) -> int | None:
        """Skip an array, and return the position of its device; None if it has none.

        Raises:
            ValueError: It has a format that this module does not know, such as a format of MXNet before 1.0.
        """
        magic = self.read("I")
        kind = self.read("i") if magic in (_MAGIC, _MAGIC_NUMPY) else -1
        if kind not in _INDEX_ARRAYS:
            raise ValueError
        stored = self.elements() if kind else None
        ndim = struct.unpack_from("<i", self.data, self.position)[0]
        size = self.elements()
        if size is None or (ndim == 0 and magic == _MAGIC):
            return None
        position = self.position
        self.position += 8
        sizes = [(self.read("i"), stored if kind else size)]
        sizes += [(self.read("i"), self.elements()) for _ in range(_INDEX_ARRAYS[kind])]
        for code, count in sizes:
            self.position += (count or 0) * (2 if code == 12 else _itemsize(code))
        return position


def _itemsize(code: int) -> int:
    return int(mx.nd.ndarray.np.dtype(_DTYPE_MX_TO_NP[code]).itemsize)


def _positions(data: Any) -> list[int | None]:
    """Return the positions of the devices of the arrays in a file; none for a file in another format."""
    reader = _Reader(data)
    try:
        if reader.read("Q") != _MAGIC_FILE:
            return []
        reader.read("Q")
        return [reader.array() for _ in range(reader.read("Q"))]
    except (KeyError, ValueError, struct.error):
        return []


def _position_of_one(data: Any) -> int | None:
    try:
        return _Reader(data).array()
    except (KeyError, ValueError, struct.error):
        return None


def _rewrite(data: Any, position: int | None, translate: Translate) -> None:
    if position is not None:
        struct.pack_into("<ii", data, position, *translate(*struct.unpack_from("<ii", data, position)))


def _gpu_at(data: Any, position: int | None) -> int | None:
    """Return the index of the GPU that an array was saved from, or None."""
    kind, index = (0, 0) if position is None else struct.unpack_from("<ii", data, position)
    return index if kind == _GPU else None


# ---------------------------------------------------------------------- functions of MXNet's library
def _save_bytes(call: Any, from_library: Translate) -> Any:
    def save(handle: Any, length: Any, pointer: Any) -> Any:
        check_call(_LIB.MXNDArrayWaitToRead(handle))  # a sparse array that is not ready is saved with a wrong shape
        failed = call(handle, length, pointer)
        if not failed:
            data = (c_char * length._obj.value).from_address(addressof(pointer._obj.contents))
            _rewrite(data, _position_of_one(data), from_library)
        return failed

    return save


def _load_bytes(call: Any, to_library: Translate) -> Any:
    def load(pointer: Any, length: Any, handle: Any) -> Any:
        gpu = _gpu_at(pointer, _position_of_one(pointer))
        if gpu is not None:
            to_library(_GPU, gpu)  # raises for a missing GPU, before anything is loaded
        failed = call(pointer, length, handle)
        if not failed and gpu is not None:
            handle._obj.value = _on_gpu(handle._obj.value, gpu)
        return failed

    return load


def _save_file(call: Any, from_library: Translate) -> Any:
    def save(name: Any, *args: Any) -> Any:
        check_call(_LIB.MXNDArrayWaitAll())
        failed = call(name, *args)
        if not failed:
            with _mapped(name, mmap.ACCESS_WRITE) as data:
                for position in _positions(data):
                    _rewrite(data, position, from_library)
        return failed

    return save


def _load_file(call: Any, to_library: Translate) -> Any:
    def load(name: Any, *args: Any) -> Any:
        with _mapped(name, mmap.ACCESS_READ) as data:
            gpus = [_gpu_at(data, position) for position in _positions(data)]
        return _load_all(gpus, lambda: call(name, *args), args[1], to_library)

    return load


def _load_buffer(call: Any, to_library: Translate) -> Any:
    def load(data: Any, size: Any, count: Any, handles: Any, *args: Any) -> Any:
        gpus = [_gpu_at(data, position) for position in _positions(data)] if isinstance(data, bytes) else []
        return _load_all(gpus, lambda: call(data, size, count, handles, *args), handles, to_library)

    return load


def _load_all(gpus: list[int | None], call: Callable[[], Any], handles: Any, to_library: Translate) -> Any:
    """Load arrays, and copy each that was saved from a GPU to that GPU."""
    for gpu in gpus:
        if gpu is not None:
            to_library(_GPU, gpu)
    failed = call()
    if not failed:
        for i, gpu in enumerate(gpus):
            if gpu is not None:
                handles._obj[i] = _on_gpu(handles._obj[i], gpu)
    return failed


_SAVING = {"MXNDArraySaveRawBytes": _save_bytes, "MXNDArraySave": _save_file, "MXNDArrayLegacySave": _save_file}
_LOADING = {
    "MXNDArrayLoadFromRawBytes": _load_bytes,
    "MXNDArrayLoad": _load_file,
    "MXNDArrayLoadFromBuffer": _load_buffer,
}


def replacements(to_library: Translate, from_library: Translate) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Yield each function of MXNet's library that saves or loads, with the function that makes its replacement."""
    for name, save in _SAVING.items():
        yield name, partial(save, from_library=from_library)
    for name, load in _LOADING.items():
        yield name, partial(load, to_library=to_library)


class _mapped:
    """A context manager that returns the bytes of a file; none if it is empty or not on this machine."""

    def __init__(self, name: Any, access: int) -> None:
        path = getattr(name, "value", name)
        self._path, self._access = Path((path or b"").decode()), access
        self._map: mmap.mmap | None = None

    def __enter__(self) -> Any:
        if not self._path.is_file() or not self._path.stat().st_size:
            return b""
        with self._path.open("r+b" if self._access == mmap.ACCESS_WRITE else "rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=self._access)
        return self._map

    def __exit__(self, *failure: object) -> None:
        if self._map is not None:
            self._map.close()


def _on_gpu(handle: int, gpu: int) -> int:
    """Return the handle of a copy on a GPU, and free the handle of the array on the host."""
    with numpy_shapes():
        array = _ndarray_cls(NDArrayHandle(handle))
        copied = array.copyto(mx.gpu(gpu))
    own = NDArrayHandle()
    check_call(_LIB.MXShallowCopyNDArray(copied.handle, byref(own)))
    return own.value or 0
