"""`Info`: the answers of an array-API namespace to ``xp.__array_namespace_info__()``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devshim.devices.device import CPU, Device
from devshim.devices.dtypes import COMPLEX, SIGNED, UNSIGNED
from devshim.errors import ArgumentError, ConversionError
from devshim.registry import current

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devshim.contract.backend import Backend

__all__ = ["Info"]

_FLOATS = ("float32", "float64")
KINDS: dict[str, tuple[str, ...]] = {
    "bool": ("bool",),
    "signed integer": SIGNED,
    "unsigned integer": UNSIGNED,
    "integral": (*SIGNED, *UNSIGNED),
    "real floating": _FLOATS,
    "complex floating": COMPLEX,
    "numeric": (*SIGNED, *UNSIGNED, *_FLOATS, *COMPLEX),
}
"""The standard's kinds of dtype, with the names of their dtypes."""


class Info:
    """The capabilities of a namespace, in the form of the array API standard; devices are `devshim.Device`."""

    def __init__(self, backend: Backend, functions: Mapping[str, Any]) -> None:
        self._backend, self._functions = backend, functions

    def capabilities(self) -> dict[str, Any]:
        """Return the capabilities outside compiled functions; compilers have additional limits."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": None}

    def default_device(self) -> Device:
        """Return the device of a tensor that is made without ``device=``."""
        return current.default_device()

    def devices(self) -> list[Device]:
        """Return the framework's devices, the host first."""
        counted = [(kind, self._backend.count(kind)) for kind in self._backend.kinds()]
        return [CPU, *(Device(kind, i) for kind, count in counted for i in range(count))]

    def default_dtypes(self, *, device: object = None) -> dict[str, Any]:
        """Return the dtypes of tensors that are made without ``dtype=``."""
        found = {}
        for kind, value in {"real floating": 1.0, "complex floating": 1j, "integral": 1}.items():
            try:
                found[kind] = self._functions["asarray"](value, device=CPU)
            except ConversionError:
                continue  # the framework has no complex numbers
        if "argmax" in self._functions:
            found["indexing"] = self._functions["argmax"](self._functions["zeros"](1, device=CPU))
        return {kind: self._backend.dtype(self._backend.dtype_name(x)) for kind, x in found.items()}

    def dtypes(self, *, device: object = None, kind: str | tuple[str, ...] | None = None) -> dict[str, Any]:
        """Return the framework's dtypes of a kind, or of all kinds, by name."""
        wanted = ("bool", "numeric") if kind is None else (kind,) if isinstance(kind, str) else kind
        unknown = [each for each in wanted if each not in KINDS]
        if unknown:
            msg = f"the array API standard has no kind of dtype {unknown[0]!r}"
            raise ArgumentError(msg, f"the kinds are {', '.join(KINDS)}")
        found = {}
        for name in dict.fromkeys(name for each in wanted for name in KINDS[each]):
            try:
                found[name] = self._backend.dtype(name)
            except ConversionError:
                continue
        return found
