"""The functions of `cupy.linalg`, implemented with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from cupy._array import compute

__all__ = list(np.linalg.__all__)


def _function(name: str) -> Any:
    function = getattr(np.linalg, name)

    def call(*args: Any, **options: Any) -> Any:
        return compute(function, *args, **options)

    call.__name__ = name
    return call


for _name in __all__:
    _found = getattr(np.linalg, _name)
    globals()[_name] = _found if isinstance(_found, type) else _function(_name)
