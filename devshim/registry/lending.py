"""Tensors in host memory that belong to two backends: while CuPy is current, NumPy's arrays are also its own.

CuPy has arrays only on GPUs, and its users keep host data in NumPy arrays. So while CuPy is the current backend, it
serves this array as its own tensor on ``cpu``: `devshim.place` copies it to a GPU, and `devshim.gather` joins it
with the data there. Otherwise NumPy serves it. NumPy always serves the arrays that no GPU could store unchanged:
arrays of the other byte order, of text or objects, masked arrays and other subclasses, including those on NumPy's
simulated GPUs.

Once this backend is loaded, no type of the lender is stored in `registry.registry.TENSORS`: which backend serves it
depends on the current backend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from devshim.registry import current, registry

if TYPE_CHECKING:
    from devshim.contract.backend import Backend

__all__ = ["backend_for", "start_lending"]


def start_lending(borrower: Backend) -> None:
    """Make a backend that is being loaded serve another backend's tensors in host memory from now on."""
    registry.LENT[borrower.host_tensors] = borrower.name
    tensors = registry.TENSORS
    for cls in [cls for cls, owner in list(tensors.items()) if owner.name == borrower.host_tensors]:
        tensors.pop(cls, None)


def backend_for(lender: Backend, x: object) -> Backend:
    """Return the backend that currently serves a tensor of a lender."""
    borrower = registry.LENT[lender.name]
    ours = type(x) is np.ndarray and current.chosen_name() == borrower and lender.is_dtype(x.dtype)
    return registry.load(borrower) if ours else lender
