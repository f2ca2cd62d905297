"""NumPy scalars, such as ``np.float32(3)``, which NumPy's operators return instead of 0-d arrays.

Other frameworks return a 0-d tensor where NumPy returns a scalar (``x.sum()``, ``loss / 2``). So a scalar that is
passed directly counts as NumPy's 0-d array on the CPU. In a tree, a scalar is a number, as a learning rate is.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from devshim.registry import registry

if TYPE_CHECKING:
    from devshim.contract.backend import Backend

__all__ = ["as_array", "is_scalar", "with_backend"]


def is_scalar(x: object) -> bool:
    """Return True for a NumPy scalar of a dtype that frameworks have; not for text or dates."""
    np: Any = sys.modules.get("numpy")
    if np is None or not isinstance(x, np.generic):
        return False
    from devshim.devices.dtypes import is_numpy_dtype

    return is_numpy_dtype(x.dtype)


def as_array(x: Any) -> Any:
    """Return a NumPy scalar as an array without dimensions; anything else unchanged."""
    return sys.modules["numpy"].asarray(x) if is_scalar(x) else x


def with_backend(x: object) -> tuple[Backend, Any] | None:
    """Return the backend of a NumPy scalar, and the scalar as an array; None for anything else."""
    if not is_scalar(x):
        return None
    array = as_array(x)
    backend = registry.backend_for(array)
    return None if backend is None else (backend, array)
