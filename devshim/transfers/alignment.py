"""The alignment rule: which memory a framework can compute on, for every way of sharing memory with it.

A framework's operators read elements with instructions that crash (SIGSEGV, or a failed check) if the address
is not aligned as they expect. Each adapter declares that alignment in bytes, with the method and the version of its
measurement (`Backend.alignment`); 0 means the size of an element, on which compiled C++ relies. This module applies the
rule to memory that is offered, and describes the problem. Memory that is not aligned enough is copied, or refused if
``copy=False`` was given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devshim.devices.device import CPU

if TYPE_CHECKING:
    import numpy as np

    from devshim.contract.backend import Backend
    from devshim.devices.device import Device
    from devshim.transfers.dlpack import TensorInfo

__all__ = ["aligned_bytes", "alignment_problem", "check_producer", "is_aligned", "require"]

_LARGEST = 64
"""The largest alignment that a framework needs (`Backend.alignment`), which is also that of a cache line."""


def aligned_bytes(nbytes: int) -> np.ndarray[Any, Any]:
    """Return new bytes in host memory, on which the operators of each framework can work."""
    import numpy as np

    raw = np.empty(nbytes + _LARGEST, "uint8")
    start = -raw.__array_interface__["data"][0] % _LARGEST
    return raw[start : start + nbytes]


def alignment_problem(backend: Backend, dtype: str, itemsize: int, address: int) -> str | None:
    """Return why a framework's operators cannot use elements at an address; None if they can."""
    needed = backend.alignment or itemsize
    if not address % needed:
        return None
    need = f"{backend.title}'s operators need memory aligned to {needed} bytes for {dtype}"
    return f"{need}, and the alignment of this address is {address & -address}"


def is_aligned(backend: Backend, array: np.ndarray) -> bool:
    """Return True if a framework's operators can use an array's memory, as always if it has no elements."""
    return not array.size or not array.__array_interface__["data"][0] % (backend.alignment or array.itemsize)


def require(backend: Backend, array: np.ndarray, target: Device) -> None:
    """Raise `CopyNeededError` unless an array's memory is on the target device and aligned for the framework."""
    from devshim.errors import messages

    if target is not CPU:
        raise messages.copy_needed(CPU, target)
    if not is_aligned(backend, array):
        why = alignment_problem(backend, array.dtype.name, array.itemsize, array.ctypes.data)
        raise messages.cannot_share("this array", str(why))


def check_producer(backend: Backend, source: Any) -> Any:
    """Return a DLPack producer over ``source`` that refuses host memory that is not aligned for the framework.

    The capsule is checked before the framework gets it. Memory on a real GPU is left to the adapters.
    """
    from devshim.transfers import dlpack

    def check(offered: TensorInfo) -> None:
        if offered.device[0] in dlpack.HOST and 0 not in offered.shape:
            why = alignment_problem(backend, offered.dtype, offered.itemsize, offered.address)
            if why is not None:
                raise BufferError(why)

    return source if backend.alignment == 1 else dlpack.ValidatingExporter(source, check)
