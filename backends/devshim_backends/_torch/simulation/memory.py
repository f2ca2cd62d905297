"""The storages on each simulated GPU: each is counted once, until its last tensor is deleted."""

from __future__ import annotations

import re
from typing import Any

import torch

from devshim.errors import OutOfMemoryError, messages
from devshim.simulation.memory import SimulatedDevices
from devshim_backends._torch.failures import FullDeviceError, RemovedDeviceError
from devshim_backends._torch.simulation.internals import nested, sparse
from devshim_backends._torch.simulation.internals.relabel import CODES, keep_lazy_bits, relabel, unsupported_error
from devshim_backends._torch.simulation.internals.state import NAME, TYPES

SIMULATED = SimulatedDevices(FullDeviceError)
SIMULATED.removed_error = RemovedDeviceError
_nbytes = torch._C.StorageBase.nbytes
_HOST_IS_FULL = re.compile(r"DefaultCPUAllocator: .* (\d+) bytes")


def adopt(tensor: Any, index: int) -> Any:
    """Return a host tensor that owns its memory as a GPU's tensor; the GPU takes over the memory and counts it.

    Raises:
        OutOfMemoryError: The GPU does not have that much free memory.
        ConversionError: It imitates a GPU without the tensor's dtype; a TypeError, like the error of MPS.
        NotImplementedError: The tensor has no plain block of memory.
    """
    if SIMULATED.dtypes_lacking:
        require_dtype(tensor, index)
    try:
        storage = tensor.untyped_storage()
    except (RuntimeError, NotImplementedError) as error:
        if tensor.is_nested:
            return nested.move_buffer(tensor, lambda buffer: adopt(buffer, index))
        if tensor.layout not in sparse.LAYOUTS:
            raise unsupported_error(tensor) from error
        return sparse.move_parts(tensor, torch.device(NAME, index), lambda part: adopt(part, index))
    nbytes = _nbytes(storage)
    if nbytes:
        SIMULATED[index].track(storage, nbytes)  # PyTorch keeps this object as long as the storage
    relabelled = relabel(tensor, CODES[index])
    return keep_lazy_bits(relabelled, tensor) if tensor.is_conj() or tensor.is_neg() else relabelled


def host_is_full(error: RuntimeError, device: Any) -> bool:
    """Return True if the host has too little memory for a call's results on a GPU (None: the GPU of its tensors)."""
    return (device is None or device.type in TYPES) and _HOST_IS_FULL.search(str(error)) is not None


def full_error(error: RuntimeError, index: int) -> OutOfMemoryError:
    """Return the error for a full GPU instead of the host's error about too little memory."""
    asked = _HOST_IS_FULL.search(str(error))
    gpu = SIMULATED[index]
    return messages.full_device(gpu.device, None if asked is None else int(asked[1]), gpu.info().free, FullDeviceError)


def require_dtype(tensor: Any, index: int) -> None:
    """Raise for a tensor of a dtype that a GPU cannot hold, such as float64 on one like MPS."""
    name = str(tensor.dtype).removeprefix("torch.")
    if name in SIMULATED.dtypes_lacking:
        SIMULATED.refuse_dtype(SIMULATED[index].device, name)
