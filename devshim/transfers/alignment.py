"""Which memory a framework can compute on: one rule for every way in which memory is shared with it.

A framework's operators read elements by instructions that end the process (SIGSEGV, or a check of its own) where the
address is not what they expect.  What each expects is a number of bytes that its adapter declares, with how and on
which version it was measured (`Backend.alignment`); 0 is the size of an element, on which compiled C++ relies.  Here is
decided what that means for memory that is offered, and said what is wrong.  What is not aligned enough is copied, or
refused where ``copy=False`` was given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devshim.devices.device import CPU

if TYPE_CHECKING:
    import numpy as np

    from devshim.contract.backend import Backend
    from devshim.devices.device import Device
    from devshim.transfers.dlpack import Offer

__all__ = ["checked", "problem", "require"]


def problem(backend: Backend, dtype: str, itemsize: int, address: int) -> str | None:
    """Return why a framework's operators cannot live on elements at an address; None where they can."""
    needed = backend.alignment or itemsize
    if not address % needed:
        return None
    need = f"{backend.title}'s operators need memory aligned to {needed} bytes for {dtype}"
    return f"{need}, and the alignment of this address is {address & -address}"


def require(backend: Backend, array: np.ndarray, target: Device) -> None:
    """Raise `CopyNeededError` unless an array's memory is on a device, and a framework can live on it."""
    from devshim.errors import messages

    if target is not CPU:
        raise messages.copy_needed(CPU, target)
    why = problem(backend, array.dtype.name, array.itemsize, array.ctypes.data) if array.size else None
    if why is not None:
        raise messages.cannot_share("this array", why)


def checked(backend: Backend, source: Any) -> Any:
    """Return a DLPack producer over ``source`` that refuses host memory on which a framework cannot live.

    The capsule is read before the framework gets it.  What is on a real card is the adapters' to look at.
    """
    from devshim.transfers import dlpack

    def check(offered: Offer) -> None:
        if offered.device[0] in dlpack.HOST and 0 not in offered.shape:
            why = problem(backend, offered.dtype, offered.itemsize, offered.address)
            if why is not None:
                raise BufferError(why)

    return source if backend.alignment == 1 else dlpack.Checked(source, check)
