"""Arrays that compute like NumPy's, and refuse what CuPy refuses."""

from __future__ import annotations

from typing import Any

import numpy as np

from cupy import _machine
from cupy.cuda import Device, memory, runtime


class _Pointer:
    def __init__(self, gpu: int, ptr: int) -> None:
        self.device_id, self.ptr = gpu, ptr


def to_numpy(value: Any) -> Any:
    """Return an operand on the current GPU as a NumPy value."""
    if isinstance(value, ndarray):
        if value.data.device_id != _machine.current():
            raise ValueError(
                "Array device must be same as the current device: array device = "
                f"{value.data.device_id} while current = {_machine.current()}"
            )
        return value._a
    if isinstance(value, np.ndarray):
        raise TypeError(f"Unsupported type {type(value)}")
    if type(value) in (list, tuple):
        return type(value)(map(to_numpy, value))
    return value


def index(key: Any) -> Any:
    """Return an index; CuPy copies a NumPy index to the GPU."""
    if isinstance(key, tuple):
        return tuple(map(index, key))
    return key if isinstance(key, np.ndarray) else to_numpy(key)


def to_array(result: Any) -> Any:
    """Return a result as an array on the current GPU."""
    if isinstance(result, tuple):
        return tuple(map(to_array, result))
    return ndarray._of(np.asarray(result)) if isinstance(result, (np.ndarray, np.generic)) else result


def compute(function: Any, *args: Any, **options: Any) -> Any:
    """Return a kernel's result; if streams work late, its values arrive late, too."""
    operands, options = to_numpy(args), {name: to_numpy(value) for name, value in options.items()}
    if not _machine.LATE[0]:
        return to_array(function(*operands, **options))
    result = to_array(np.full_like(function(*operands, **options), 0))
    _machine.stream().submit(lambda: np.copyto(result._a, function(*operands, **options)))
    return result


def wrap(function: Any) -> Any:
    """Return a NumPy function as one of CuPy."""

    def call(*args: Any, **options: Any) -> Any:
        return compute(function, *args, **options)

    call.__name__ = getattr(function, "__name__", "call")  # numpy.test has no name
    return call


class ndarray:
    _a: np.ndarray
    _gpu: int

    @classmethod
    def _of(cls, array: np.ndarray, base: ndarray | None = None) -> ndarray:
        self = cls.__new__(cls)
        self._a = array
        self._gpu = _machine.current() if base is None else base._gpu
        self._base = base
        if base is None:
            memory.malloc(self, array.nbytes)
        return self

    data = property(lambda self: _Pointer(self._gpu, self._a.ctypes.data))
    device = property(lambda self: Device(self._gpu))
    shape = property(lambda self: self._a.shape)
    dtype = property(lambda self: self._a.dtype)
    ndim = property(lambda self: self._a.ndim)
    size = property(lambda self: self._a.size)
    nbytes = property(lambda self: self._a.nbytes)
    strides = property(lambda self: self._a.strides)
    flags = property(lambda self: self._a.flags)
    T = property(lambda self: self._of(self._a.T, self))

    def __len__(self) -> int:
        return len(self._a)

    def __array__(self, dtype: object = None, copy: object = None) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return compute(getattr(ufunc, method), *inputs, **options)

    def get(self, stream: object = None, order: str = "C", out: object = None, blocking: bool = True) -> np.ndarray:
        _machine.calls["get"] += 1
        before = runtime.getDevice()
        runtime.setDevice(self._gpu)
        try:
            _machine.stream().run_work()
        finally:
            runtime.setDevice(before)
        return np.array(self._a, order=order)

    def set(self, values: np.ndarray) -> None:
        to_numpy(self)
        self._a[...] = values

    def item(self) -> Any:
        return self.get().item()

    def tolist(self) -> Any:
        return self.get().tolist()

    def tobytes(self, order: str = "C") -> bytes:
        return self.get().tobytes(order)

    def __float__(self) -> float:
        return float(self.get())

    def __int__(self) -> int:
        return int(self.get())

    def __complex__(self) -> complex:
        return complex(self.get())

    def __bool__(self) -> bool:
        return bool(self.get())

    def __repr__(self) -> str:
        return repr(self.get())

    def __str__(self) -> str:
        return str(self.get())

    def __format__(self, spec: str) -> str:
        return format(self.get(), spec)

    def __reduce__(self) -> Any:
        import cupy

        return cupy.array, (self.get(),)

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key: Any) -> Any:
        found = self._a[index(key)]
        if isinstance(found, np.ndarray) and np.shares_memory(found, self._a):
            return self._of(found, self)
        at = self._a[(*(key if isinstance(key, tuple) else (key,)), ...)] if not hasattr(key, "shape") else None
        if at is not None and np.shares_memory(at, self._a):
            return self._of(at, self)  # without axes: CuPy returns an array, and a view
        return compute(lambda: found)

    def __setitem__(self, key: Any, value: Any) -> None:
        target, key = to_numpy(self), index(key)
        values = value if isinstance(value, np.ndarray) else to_numpy(value)
        _machine.stream().submit(lambda: target.__setitem__(key, values))

    def astype(self, dtype: Any, order: str = "K", casting: Any = None, subok: Any = None, copy: bool = True) -> Any:
        kept = order == "K" or self._a.flags.c_contiguous
        if not copy and self._a.dtype == np.dtype(dtype) and kept:
            return self
        return compute(lambda a: a.astype(dtype, order="C" if order == "C" else "K"), self)

    def copy(self, order: str = "C") -> ndarray:
        if self._gpu == _machine.current():
            return compute(np.copy, self)
        if not self._a.flags.c_contiguous:
            raise NotImplementedError("CuPy cannot copy non-contiguous array between devices.")
        source, result = self._a, to_array(np.zeros_like(self._a))
        _machine.calls["memcpyPeerAsync"] += 1
        _machine.stream().submit(lambda: np.copyto(result._a, source))
        return result

    def reshape(self, *shape: Any) -> ndarray:
        found = self._a.reshape(*shape)
        return self._of(found, self if np.shares_memory(found, self._a) else None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, self._gpu)

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None
    ) -> Any:
        to_numpy(self)
        _machine.calls["exported"] += 1
        return self._a.__dlpack__()


_OPERATORS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor")


def _operator(name: str) -> Any:
    function = getattr(np.ndarray, name)

    def method(self: ndarray, *others: Any) -> Any:
        if not all(isinstance(each, (ndarray, int, float, complex, np.generic)) for each in others):
            to_numpy(others)
            return NotImplemented
        return compute(function, self, *others)

    method.__name__ = name
    return method


for _name in (*_OPERATORS, *(f"r{name}" for name in _OPERATORS), "eq", "ne", "lt", "le", "gt", "ge", "neg", "abs"):
    setattr(ndarray, f"__{_name}__", _operator(f"__{_name}__"))
ndarray.__hash__ = None  # type: ignore[assignment]


def _method(name: str) -> Any:
    function = getattr(np, name)
    return lambda self, *args, **options: compute(function, self, *args, **options)


for _name in ("sum", "mean", "max", "min", "all", "any", "ravel", "transpose", "squeeze", "nonzero", "cumsum", "prod"):
    setattr(ndarray, _name, _method(_name))
ndarray.__module__ = "cupy"
