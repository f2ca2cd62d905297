"""The functions of `cupy.linalg`, implemented with NumPy."""

import numpy as np

from cupy._array import wrap

__all__ = list(np.linalg.__all__)

for _name in __all__:
    _found = getattr(np.linalg, _name)
    globals()[_name] = _found if isinstance(_found, type) else wrap(_found)
