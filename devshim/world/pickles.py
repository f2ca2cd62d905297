"""Functions, arguments and results as bytes for another process.

A plain pickle is enough for objects that the other process can import. Ray's pickle of functions by value is needed for
the rest: lambdas, local functions, and definitions in the program or in a notebook. It is a single module that imports
only the standard library, so it is loaded without Ray, whose import takes 0.3 s in each rank.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

__all__ = ["dumps", "dumps_by_value", "loads"]

_PROGRAM = b"__main__"
"""The name of a module that differs in each process."""
_LOCK = threading.RLock()
"""Held while Ray's module is loaded, or has the module of `dumps_by_value` in its list: both belong to the process."""
_BY_VALUE = "devshim_world_cloudpickle"
"""The name of Ray's module in ``sys.modules``; pickles contain it."""


def dumps(value: Any, buffers: list[Any] | None = None) -> bytes:
    """Return a value as bytes for `loads` in another process of this machine or cluster.

    Args:
        value: The value.
        buffers: Receives the memory of the arrays in it, which is then not copied.

    Raises:
        Exception: Neither pickle works; the error comes from the object or from Ray's pickle.
    """
    out_of_band = None if buffers is None else buffers.append
    try:
        found = pickle.dumps(value, 5, buffer_callback=out_of_band)
        if _PROGRAM not in found:
            return found
    except Exception:  # Ray's pickle raises the same error if it cannot help
        if find_spec("ray") is None:
            raise
    if buffers is not None:
        buffers.clear()
    return bytes(_cloudpickle().dumps(value, buffer_callback=out_of_band))


def dumps_by_value(value: Any, module: ModuleType) -> bytes:
    """Return a value as bytes, with every function and class of a module that the other process cannot import."""
    cloudpickle = _cloudpickle()
    with _LOCK:
        cloudpickle.register_pickle_by_value(module)
        try:
            return bytes(cloudpickle.dumps(value))
        finally:
            cloudpickle.unregister_pickle_by_value(module)


def loads(data: bytes, buffers: Sequence[Any] = ()) -> Any:
    """Return the value of bytes from `dumps` or `dumps_by_value`, which come from a process of the same user."""
    if _BY_VALUE.encode() in data:
        _cloudpickle()
    return pickle.loads(data, buffers=buffers)


def _cloudpickle() -> Any:
    """Return Ray's module for pickles by value, without importing Ray."""
    with _LOCK:
        return sys.modules.get(_BY_VALUE) or _load_cloudpickle()


def _load_cloudpickle() -> Any:
    ray = find_spec("ray")
    assert ray is not None  # `devshim.launch` has looked
    file = os.path.join(*(ray.submodule_search_locations or ()), "cloudpickle", "cloudpickle.py")
    spec = spec_from_file_location(_BY_VALUE, file)
    assert spec is not None
    assert spec.loader is not None
    found = sys.modules[_BY_VALUE] = module_from_spec(spec)
    try:
        spec.loader.exec_module(found)
    except BaseException:
        del sys.modules[_BY_VALUE]
        raise
    return found
