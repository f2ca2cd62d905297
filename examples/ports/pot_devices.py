"""Give the backends of POT (Python Optimal Transport) the device code of devshim.

POT passes ``type_as=x`` to every function that makes an array, and each of its backends writes by hand how an array
gets the dtype and the device of ``x``. `install` replaces these functions by one class for all backends::

    import examples.ports.pot_devices as pot_devices
    pot_devices.install()
    plan = ot.sinkhorn(ot.unif(20, type_as=x), ot.unif(30, type_as=x), ot.dist(x, y), reg=1)  # on the device of x

The solvers of POT stay as they are, and compute where their arguments are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import ot.backend

import devshim as ds

FRAMEWORKS = {"numpy": "numpy", "torch": "torch", "jax": "jax", "cupy": "cupy", "tf": "tensorflow"}
"""POT's name of a backend -> devshim's name of the framework."""


class DeviceMixin:
    """The device code of every backend of POT."""

    __name__: str
    __type__: type

    def _make(self, create: Any, *args: Any, type_as: Any, **kwargs: Any) -> Any:
        with ds.using(FRAMEWORKS[self.__name__]):  # for arrays like none
            return create(*args, like=type_as, **kwargs)

    def _to_numpy(self, a: Any) -> Any:
        return ds.to_numpy(a) if isinstance(a, self.__type__) else np.asarray(a)  # or a number

    def _from_numpy(self, a: Any, type_as: Any = None) -> Any:
        return self._make(ds.asarray, a, type_as=type_as)

    def zeros(self, shape: Any, type_as: Any = None) -> Any:
        return self._make(ds.zeros, shape, type_as=type_as)

    def ones(self, shape: Any, type_as: Any = None) -> Any:
        return self._make(ds.ones, shape, type_as=type_as)

    def full(self, shape: Any, fill_value: Any, type_as: Any = None) -> Any:
        return self._make(ds.full, shape, fill_value, type_as=type_as)

    def eye(self, N: int, M: int | None = None, type_as: Any = None) -> Any:  # as POT names them
        return self._make(ds.eye, N, M, type_as=type_as)

    def arange(self, stop: Any, start: Any = 0, step: Any = 1, type_as: Any = None) -> Any:
        return self._make(ds.arange, start, stop, step, type_as=type_as)

    def linspace(self, start: Any, stop: Any, num: int, type_as: Any = None) -> Any:
        return self._make(ds.linspace, start, stop, num, type_as=type_as)

    def seed(self, seed: int | None = None) -> None:
        if seed is not None:  # POT's constructors pass None; the generators of devshim are seeded already
            ds.random.seed(seed)

    def rand(self, *size: int, type_as: Any = None) -> Any:
        return self._make(ds.random.uniform, size=size, type_as=type_as)

    def randn(self, *size: int, type_as: Any = None) -> Any:
        return self._make(ds.random.normal, size=size, type_as=type_as)

    def randperm(self, size: int, type_as: Any = None) -> Any:
        return self._make(ds.random.permutation, size, dtype="int64", type_as=type_as)

    def dtype_device(self, a: Any) -> tuple[str, ds.Device]:
        return ds.dtype_of(a), ds.device_of(a)

    def assert_same_dtype_device(self, a: Any, b: Any) -> None:
        assert self.dtype_device(a) == self.dtype_device(b)

    def device_type(self, type_as: Any) -> str:
        return ds.device_of(type_as).kind.upper()

    def bitsize(self, type_as: Any) -> int:
        return 8 * int(ds.to_numpy(ds.zeros((), like=type_as)).itemsize)


def install() -> None:
    """Let every backend of POT that is installed make arrays with devshim."""
    for backend in ot.backend.get_available_backend_implementations():
        ported = type(backend.__name__, (DeviceMixin, backend), {})
        ot.backend._BACKENDS[backend.__name__] = ported()
