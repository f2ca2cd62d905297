"""The functions of `cupy.fft`, implemented with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from cupy._array import compute

__all__ = list(np.fft.__all__)


def _function(name: str) -> Any:
    function = getattr(np.fft, name)

    def call(*args: Any, **options: Any) -> Any:
        return compute(function, *args, **options)

    call.__name__ = name
    return call


for _name in __all__:
    _found = getattr(np.fft, _name)
    globals()[_name] = _found if isinstance(_found, type) else _function(_name)
