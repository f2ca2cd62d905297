"""Give the backends of TensorLy the device code of devshim.

TensorLy writes ``tl.ones(rank, **tl.context(x))`` where a new tensor must match ``x``. Only its PyTorch backend has the
device in the context, so elsewhere new tensors are on the default device. `install` replaces the context, and the
functions that take it, by one class for all backends::

    import examples.ports.tensorly_devices as tensorly_devices
    tensorly_devices.install("tensorflow")
    factors = parafac(x, rank=2)  # on the device of x

The decompositions of TensorLy stay as they are, and compute where their arguments are.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import tensorly

import devshim as ds

FRAMEWORKS = {"numpy": "numpy", "pytorch": "torch", "jax": "jax", "tensorflow": "tensorflow", "paddle": "paddle"}
"""TensorLy's name of a backend -> devshim's name of the framework."""


class DeviceMixin:
    """The device code of every backend of TensorLy."""

    framework: ClassVar[str]
    is_tensor: ClassVar[Callable[[Any], bool]]

    @staticmethod
    def context(tensor: Any) -> dict[str, Any]:
        return {"dtype": tensor.dtype, "device": ds.device_of(tensor)}

    @classmethod
    def tensor(cls, data: Any, dtype: Any = None, device: Any = None) -> Any:
        with ds.using(cls.framework):
            return ds.asarray(data, dtype=dtype, device=device, copy=True)

    @classmethod
    def to_numpy(cls, tensor: Any) -> Any:
        return ds.to_numpy(tensor) if cls.is_tensor(tensor) else np.asarray(tensor)

    @classmethod
    def zeros(cls, shape: Any, dtype: Any = None, device: Any = None) -> Any:
        with ds.using(cls.framework):
            return ds.zeros(shape, dtype=dtype, device=device)

    @classmethod
    def ones(cls, shape: Any, dtype: Any = None, device: Any = None) -> Any:
        with ds.using(cls.framework):
            return ds.ones(shape, dtype=dtype, device=device)

    @staticmethod
    def zeros_like(tensor: Any, dtype: Any = None, device: Any = None) -> Any:
        return ds.zeros_like(tensor, dtype=dtype, device=device)

    @classmethod
    def eye(cls, n: int, m: int | None = None, dtype: Any = None, device: Any = None) -> Any:
        with ds.using(cls.framework):
            return ds.eye(n, m, dtype=dtype, device=device)


def install(name: str) -> None:
    """Let one backend of TensorLy make tensors with devshim, and use it in this thread."""
    module = importlib.import_module(f"tensorly.backend.{name}_backend")
    (backend,) = [each for each in vars(module).values() if getattr(each, "backend_name", None) == name]
    body = {"framework": FRAMEWORKS[name]}
    ported = type(backend.__name__, (DeviceMixin, backend), body, backend_name=name)
    tensorly.set_backend(ported(), local_threadsafe=True)
