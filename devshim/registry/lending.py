"""Tensors in host memory that belong to two backends: NumPy's arrays are CuPy's own, too, while CuPy is current.

CuPy has arrays on GPUs alone, and its users keep what is on the host in NumPy's.  So wherever CuPy is the current
backend it serves such an array as its own tensor on ``cpu``: `devshim.place` brings it to a GPU, and `devshim.gather`
joins it with what was there.  Elsewhere NumPy serves it, and everywhere what no GPU could hold as it is: arrays of the
other byte order, of text or objects, masked ones and other subclasses, those on NumPy's simulated GPUs among them.

Once such a backend is loaded, no type of the lender's is remembered in `registry.registry.TENSORS`: who serves it is a
question of the moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from devshim.registry import current, registry

if TYPE_CHECKING:
    from devshim.contract.backend import Backend

__all__ = ["begin", "serving"]


def begin(borrower: Backend) -> None:
    """Have a backend that is being loaded serve another's tensors in host memory from now on."""
    registry.LENT[borrower.host_tensors] = borrower.name
    tensors = registry.TENSORS
    for cls in [cls for cls, owner in list(tensors.items()) if owner.name == borrower.host_tensors]:
        tensors.pop(cls, None)


def serving(lender: Backend, x: object) -> Backend:
    """Return the backend that serves a tensor of a lender's now."""
    borrower = registry.LENT[lender.name]
    ours = type(x) is np.ndarray and current.chosen() == borrower and lender.is_dtype(x.dtype)
    return registry.load(borrower) if ours else lender
