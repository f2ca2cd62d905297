"""What of a simulated card's values leaves it unasked: by Python's own conversions and by printing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from devshim.backend import Backend
from devshim.device import CPU, Device

from .simulation import SimulatedArray

NAMES = {
    "item": "item()",
    "tolist": "tolist()",
    "__float__": "float()",
    "__int__": "int()",
    "__complex__": "complex()",
    "__index__": "an index",
    "__bool__": "bool()",
    "__repr__": "print()",
    "__str__": "print()",
    "__format__": "print()",
}
"""Method -> what it is called for."""


class NumpyHidden(Backend):
    """Methods that read a card's values into Python are replaced while somebody watches."""

    @contextmanager
    def watch(self, report: Callable[[Device, Device, str], None]) -> Iterator[None]:
        before = {name: SimulatedArray.__dict__.get(name) for name in NAMES}
        for name, what in NAMES.items():
            setattr(SimulatedArray, name, _reporting(name, what, report))
        try:
            yield
        finally:
            for name, method in before.items():
                if method is None:
                    delattr(SimulatedArray, name)
                else:
                    setattr(SimulatedArray, name, method)


def _reporting(name: str, what: str, report: Callable[[Device, Device, str], None]) -> Any:
    original = SimulatedArray.__dict__.get(name) or getattr(np.ndarray, name)

    def method(self: SimulatedArray, *args: Any) -> Any:
        report(self._card, CPU, what)
        return original(self, *args)

    return method
