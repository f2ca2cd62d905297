"""Describe the values of a cell as JSON, in the same form on every framework, so that they can be compared.

This runs inside the kernel. The forms, each with its ``kind``:

* ``none``; ``bool``, ``number`` and ``text`` with ``value``; ``device`` and ``dtype`` with devshim's name as ``value``;
* ``tensor`` with ``shape``, ``dtype``, ``device``, ``count`` and ``numbers``, which are a sample if there are many;
* ``list``, ``tuple`` and ``dict`` with ``items``; ``object`` with the ``type``'s name, for everything else.
"""

from __future__ import annotations

import hashlib
import math
from contextlib import suppress
from typing import Any

from devshim.devices.device import Device
from devshim.devices.parsing import device as read_device
from devshim.errors import DevshimError
from devshim.registry import registry

__all__ = ["MOST_NUMBERS", "describe", "describe_tensors"]

MOST_NUMBERS = 100
"""The number of a tensor's values that are recorded; of a larger tensor, this many at equal distances."""
_MOST_BYTES = 256 << 20
"""The numbers of a larger tensor are not read: copying it to the host would take too long."""
_MOST_ITEMS = 200
_DEEPEST = 6
DTYPES = (
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "complex64",
    "complex128",
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
)
"""The array-API names of dtypes."""


def describe(value: object, depth: int = 0) -> dict[str, Any]:
    """Return a value's description."""
    if value is None:
        return {"kind": "none"}
    if isinstance(value, bool):
        return {"kind": "bool", "value": value}
    if isinstance(value, (int, float)) and not hasattr(value, "shape"):
        return {"kind": "number", "value": _number(value)}
    if isinstance(value, str):
        return {"kind": "text", "value": _encodable(value)}
    if isinstance(value, Device):
        return {"kind": "device", "value": str(value)}
    if isinstance(value, (list, tuple, dict)) and depth < _DEEPEST:
        with suppress(Exception):  # a class of the user's, derived from dict, may do anything
            return _container(value, depth)
    return _of_framework(value) or {"kind": "object", "type": f"{type(value).__module__}.{type(value).__qualname__}"}


def _encodable(text: str) -> str:
    """Return text that UTF-8 can encode: half of a surrogate pair is written as an escape."""
    return text.encode(errors="backslashreplace").decode()


def describe_tensors(value: object) -> dict[str, Any] | None:
    """Return the description of a tensor, or of a container that has one; None for anything else."""
    found = describe(value)
    return found if _has_tensor(found) else None


def _has_tensor(found: dict[str, Any]) -> bool:
    items = found.get("items", ())
    inside = items.values() if isinstance(items, dict) else items
    return found["kind"] == "tensor" or any(_has_tensor(each) for each in inside)


def _container(value: Any, depth: int) -> dict[str, Any]:
    if isinstance(value, dict):
        pairs = list(value.items())[:_MOST_ITEMS]
        return {"kind": "dict", "items": {_encodable(str(key)): describe(each, depth + 1) for key, each in pairs}}
    kind = "list" if isinstance(value, list) else "tuple"
    return {"kind": kind, "items": [describe(each, depth + 1) for each in value[:_MOST_ITEMS]]}


def _of_framework(value: Any) -> dict[str, Any] | None:
    """Return the description of a framework's tensor, dtype or device; None if it is another object."""
    try:
        backend = registry.backend_for(value)
        if backend is not None and hasattr(value, "shape"):
            return _tensor(backend, value)
        return _dtype(value) or _native_device(value)
    except Exception:  # a deleted buffer, a failed device: the cell's own output is what counts
        return None


def _dtype(value: Any) -> dict[str, Any] | None:
    for backend in registry.loaded_backends():
        if backend.is_dtype(value):
            for name in DTYPES:
                with suppress(DevshimError):  # a framework has not all of them
                    if backend.dtype(name) == value:
                        return {"kind": "dtype", "value": name}
    return None


def _native_device(value: Any) -> dict[str, Any] | None:
    """Return the description of a framework's own device; devshim reads every framework's."""
    if type(value).__module__.partition(".")[0] not in registry.ROOTS or "dtype" in type(value).__name__.lower():
        return None
    return {"kind": "device", "value": str(read_device(value))}


def _tensor(backend: Any, x: Any) -> dict[str, Any]:
    shape = [int(length) for length in backend.shape(x)]
    found = {
        "kind": "tensor",
        "shape": shape,
        "dtype": backend.dtype_name(x),
        "device": str(backend.device_of(x)),
        "count": math.prod(shape),
    }
    return {**found, **_numbers(backend, x)} if backend.nbytes(x) <= _MOST_BYTES else found


def _numbers(backend: Any, x: Any) -> dict[str, Any]:
    """Return a tensor's numbers, or a sample of them with a summary; complex ones as pairs."""
    import numpy as np

    if backend.dtype_name(x) == "bfloat16":  # NumPy has it only with ml_dtypes
        x = backend.cast(x, backend.dtype("float32"))
    array = np.asarray(backend.to_numpy(x, True)).ravel()
    if array.dtype.kind == "c":
        array = array.view(array.real.dtype)
    exact = array.dtype.kind in "iub"
    wide = array if exact else array.astype(np.float64)
    if wide.size <= MOST_NUMBERS:
        return {"numbers": [_number(each) for each in wide.tolist()]}
    step = np.linspace(0, wide.size - 1, MOST_NUMBERS).astype(np.int64)
    found: dict[str, Any] = {"numbers": [_number(each) for each in wide[step].tolist()]}
    if exact:
        found["digest"] = hashlib.sha256(np.ascontiguousarray(wide, dtype=np.int64).tobytes()).hexdigest()[:16]
    else:
        with np.errstate(all="ignore"):
            summary = {"least": wide.min(), "most": wide.max(), "mean": wide.mean()}
        found.update({name: _number(float(each)) for name, each in summary.items()})
    return found


def _number(value: float) -> float | str:
    """Return a number as JSON has it: to nine digits, which tell all of float32; nan and the infinities are text."""
    if isinstance(value, float):
        return float(f"{value:.9g}") if math.isfinite(value) else str(value)
    return value
