"""The standard's rules for dtypes: promotion, casts, kinds and limits, for any framework's dtypes.

Names are those of the standard. A dtype that a framework lacks is replaced by the next wider one of its kind.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from devshim.devices.dtypes import COMPLEX, FLOATS, RANKS, SIGNED, UNSIGNED, numpy_dtype, promoted
from devshim.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

KINDS = {
    "bool": ("bool",),
    "signed integer": SIGNED,
    "unsigned integer": UNSIGNED,
    "integral": (*SIGNED, *UNSIGNED),
    "real floating": FLOATS,
    "complex floating": COMPLEX,
    "numeric": (*SIGNED, *UNSIGNED, *FLOATS, *COMPLEX),
}
"""The standard's kinds of dtype, with float16 and bfloat16 among the floats."""
_SCALARS = {bool: 0, int: 1, float: 2, complex: 3}
_LADDERS = (SIGNED, UNSIGNED, FLOATS, COMPLEX)


class Dtypes:
    """The dtypes of one framework.

    Args:
        own: Name -> the framework's dtype.
        name_of: Returns the name of a tensor's dtype.
        is_tensor: Returns True for the framework's tensors.
        default_int: The name of the framework's default integer dtype.
    """

    def __init__(
        self,
        own: Mapping[str, Any],
        name_of: Callable[[Any], str],
        is_tensor: Callable[[type], bool],
        default_int: str = "int64",
    ) -> None:
        self.own = dict(own)
        self.default_int = default_int
        self._is_tensor = is_tensor
        self.name_of = name_of

    def name(self, value: Any) -> str:
        """Return the name of a tensor's dtype, or of a dtype in any form."""
        if isinstance(value, str):
            return value
        if self._is_tensor(type(value)):
            return self.name_of(value)
        for name, own in self.own.items():
            if own is value:
                return name
        for name, own in self.own.items():
            if own == value:
                return name
        if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
            return np.dtype(value).name
        msg = f"this is not a dtype of the array API: {value!r}"
        raise ArgumentError(msg, "pass one of the namespace's dtypes, such as xp.float32")

    def get(self, value: Any) -> Any:
        """Return the framework's dtype for a name or dtype; None stays None."""
        if value is None:
            return None
        name = self.name(value)
        return self.own[name] if name in self.own else self.own[self._available_dtype(name)]

    def _available_dtype(self, name: str) -> str:
        """Return a dtype that can hold the values of one that the framework lacks."""
        for ladder in _LADDERS:
            if name in ladder:
                wider = [each for each in ladder[ladder.index(name) :] if each in self.own]
                if wider:
                    return wider[0]
        return "int64" if name.startswith("uint") else "float64"

    def is_kind(self, x: Any, kind: str) -> bool:
        """Return True if a tensor or dtype is of one of the standard's kinds."""
        return self.name(x) in KINDS[kind]

    def result_name(self, *values: Any) -> str:
        """Return the name of the dtype to which tensors, dtypes and Python numbers are promoted."""
        names = [self.name(value) for value in values if type(value) not in _SCALARS]
        rank = max((_SCALARS[type(value)] for value in values if type(value) in _SCALARS), default=0)
        if not names:
            return ("bool", self.default_int, "float32", "complex64")[rank]
        name = names[0]
        for other in names[1:]:
            name = promoted(name, other)
        if rank > RANKS[name]:
            wide = name in ("float64", "int64", "uint64") and rank == 3
            name = (name, self.default_int, "float32", "complex128" if wide else "complex64")[rank]
        return name if name in self.own else self._available_dtype(name)

    def sum_dtype(self, x: Any, dtype: Any = None) -> Any:
        """Return the dtype in which a sum or product is computed: bools and small integers become the default ones."""
        name = self.name_of(x) if dtype is None else self.name(dtype)
        if dtype is None and name in self.own and name in FLOATS:
            return self.own[name]
        if dtype is None and name == "bool":
            name = self.default_int
        elif dtype is None and name in KINDS["integral"]:
            wanted = self.default_int if name in SIGNED else f"u{self.default_int}"
            name = wanted if np.dtype(name).itemsize <= np.dtype(wanted).itemsize else name
        return self.get(name)

    def functions(self) -> dict[str, Callable[..., Any]]:
        """Return the functions of the standard that are about dtypes."""
        return {
            "can_cast": self.can_cast,
            "finfo": self.finfo,
            "iinfo": self.iinfo,
            "isdtype": self.isdtype,
            "result_type": self.result_type,
        }

    def result_type(self, *arrays_and_dtypes: Any) -> Any:
        """Return the dtype to which tensors, dtypes and Python numbers are promoted."""
        if not arrays_and_dtypes:
            msg = "result_type was given no argument"
            raise ArgumentError(msg, "pass at least one tensor or dtype")
        return self.own[self.result_name(*arrays_and_dtypes)]

    def can_cast(self, from_: Any, to: Any, /) -> bool:
        """Return True if promotion can lead from one dtype to another."""
        source, target = self.name(from_), self.name(to)
        if RANKS[source] != RANKS[target] and {RANKS[source], RANKS[target]} != {2, 3}:
            return False
        return promoted(source, target) == target

    def isdtype(self, dtype: Any, kind: Any) -> bool:
        """Return True if a dtype is of a kind of the standard, or is a given dtype; ``kind`` may be a tuple."""
        if isinstance(kind, tuple):
            return any(self.isdtype(dtype, each) for each in kind)
        if isinstance(kind, str):
            if kind not in KINDS:
                msg = f"the array API standard has no kind of dtype {kind!r}"
                raise ArgumentError(msg, f"the kinds are {', '.join(KINDS)}")
            return self.name(dtype) in KINDS[kind]
        return self.name(dtype) == self.name(kind)

    def finfo(self, type: Any, /) -> Any:
        """Return the limits of a floating dtype."""
        name = self.name(type)
        if RANKS[name] < 2:
            msg = f"finfo was given {name}, and it must be a floating dtype"
            raise ArgumentError(msg, "xp.iinfo has the limits of integers")
        real = {"complex64": "float32", "complex128": "float64"}.get(name, name)
        if real == "bfloat16":
            import ml_dtypes

            found: Any = ml_dtypes.finfo(numpy_dtype(real))
        else:
            found = np.finfo(real)
        limits = {key: float(getattr(found, key)) for key in ("eps", "max", "min", "smallest_normal")}
        return SimpleNamespace(bits=int(found.bits), dtype=self.own[real], **limits)

    def iinfo(self, type: Any, /) -> Any:
        """Return the limits of an integer dtype."""
        name = self.name(type)
        if name not in KINDS["integral"]:
            msg = f"iinfo was given {name}, and it must be an integer dtype"
            raise ArgumentError(msg, "xp.finfo has the limits of floats")
        found = np.iinfo(name)
        return SimpleNamespace(bits=found.bits, max=int(found.max), min=int(found.min), dtype=self.own[name])
