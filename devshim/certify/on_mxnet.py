"""Claims about MXNet: its engine runs calls asynchronously, and `place` waits where it must."""

from __future__ import annotations

import numpy as np

import devshim as ds
from devshim.certify.claims import Claims, Setting, expect

__all__ = ["CLAIMS"]

CLAIMS = Claims("mxnet")


@CLAIMS.add("`place` has read memory shared with NumPy when it returns.")
def shared(at: Setting) -> None:
    """Overwrite the array right after the call."""
    for value in range(1, 4):
        array = np.full(1 << (18 if at.simulated else 24), value, "float32")
        y = ds.place(ds.from_numpy(array, copy=False), at.first)
        array[:] = -1
        found = ds.to_numpy(y)
        expect(found.min() == found.max() == value, f"{found.min()} to {found.max()}, not {value}")


@CLAIMS.add("Gradients flow through `place`.")
def gradients(at: Setting) -> None:
    """Move to the GPU under autograd."""
    mx = ds.framework()
    x = ds.ones(3, dtype="float32")
    x.attach_grad()
    with mx.autograd.record():
        y = (ds.place(x, at.last) * 2).sum()
    y.backward()
    expect(ds.to_numpy(x.grad).tolist() == [2, 2, 2], f"it is {x.grad}")
