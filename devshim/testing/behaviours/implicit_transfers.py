"""Tables for the tests of the guard: operations that copy between devices implicitly, and explicit ones."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np

import devshim as ds
from devshim.testing.values import numbers

__all__ = ["COLLECTIVE", "EXPLICIT", "IMPLICIT", "IMPLICIT_TO_GPU", "READ_BY_NUMPY"]

IMPLICIT: dict[str, Callable[[Any], object]] = {
    "float": float,
    "int": int,
    "bool": bool,
    "print": str,
    "repr": repr,
    "item": lambda x: x.item() if hasattr(x, "item") else x.numpy(),  # TensorFlow's name for it
    "an f-string": lambda x: f"{x}",
    "a condition": lambda x: 1 if x > 0 else 2,
    "an assertion": lambda x: _assert(x),
    "the greatest of a list": lambda x: max([x, x]),
    "a search in a list": lambda x: x in [x + 1],
    "all of them": lambda x: all([x > 0]),
}
"""Operations that read a tensor's value into Python, which is an implicit transfer."""

IMPLICIT_TO_GPU: dict[str, Callable[[Any], object]] = {
    "a NumPy array": lambda x: x + numbers(),
    "an index of the host's": lambda x: x[ds.asarray([0, 1], dtype="int64", device="cpu")],
    "a NumPy index": lambda x: x[numbers()[:, 0].astype("int64") % 3],
}
"""Operations of a GPU's tensor with data on the host."""

READ_BY_NUMPY: dict[str, Callable[[Any], Any]] = {
    "asarray": np.asarray,
    "array": np.array,
    "another dtype": lambda x: np.asarray(x, dtype="float64"),
    "a universal function": lambda x: np.multiply(x, 2.0),
    "a function": lambda x: np.stack([x, x]),
}
"""Operations by which NumPy reads a tensor's values, if it can."""

COLLECTIVE = ("all_reduce_", "metrics", "split and gather")
"""Those of `EXPLICIT` that need ``several``, a feature of `devshim.contract.backend.FEATURES`."""

EXPLICIT: dict[str, Callable[[Any], object]] = {
    "place": lambda x: ds.place(x, "cpu"),
    "copy": lambda x: ds.copy(x, ds.device_of(x)),
    "to_numpy": lambda x: ds.to_numpy(x),
    "asarray": lambda x: ds.asarray([1.0, 2.0], device=ds.device_of(x)),
    "zeros": lambda x: ds.zeros(3, device=ds.device_of(x)),
    "tree": lambda x: ds.place({"x": [x]}, "cpu"),
    "compute": lambda x: ds.run(lambda y: y + y, x),
    "device_of": lambda x: ds.device_of(x),
    "draw": lambda x: ds.random.normal(size=3, device=ds.device_of(x)),
    "like": lambda x: ds.full_like(x, 2),
    "arange": lambda x: ds.arange(3, device=ds.device_of(x)),
    "convert": lambda x: ds.convert(x, "numpy", "cpu"),
    "split and gather": lambda x: ds.gather(ds.split(x, ["cpu", ds.device_of(x)]), "cpu"),
    "all_reduce_": lambda x: ds.all_reduce_([x, ds.place(x, "cpu")]),
    "broadcast": lambda x: ds.broadcast({"x": x}, ["cpu", ds.device_of(x)]),
    "save and load": lambda x: _save_and_load(x),
    "metrics": lambda x: _measure(x),
    "a scope": lambda x: _in_scope(x),
    "a placement": lambda x: ds.place({"x": x}, ds.Placement({"x": "cpu"})),
}
"""Operations that are explicit transfers, or that copy nothing."""


def _assert(x: Any) -> None:
    assert x, "a tensor of one number that is not 0"


def _save_and_load(x: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        ds.save({"x": x}, f"{folder}/x.safetensors")
        return ds.load(f"{folder}/x.safetensors", ds.device_of(x))


def _measure(x: Any) -> Any:
    log = ds.MetricLog(ds.device_of(x))
    for value in (1, 2):
        log.append(ds.full((1,), value, dtype="float32", device=ds.device_of(x)))
    return log.flush()


def _in_scope(x: Any) -> Any:
    with ds.on(ds.device_of(x)):
        return ds.run(lambda y: y + ds.ones((3, 4), dtype="float32"), x)
