"""The storages on each simulated GPU: each is counted once, until the last tensor over it is gone."""

from __future__ import annotations

from typing import Any

import torch

from devshim.simulation.memory import SimulatedDevices
from devshim_backends._torch.failures import FullDeviceError, RemovedDeviceError
from devshim_backends._torch.simulation import sparse
from devshim_backends._torch.simulation.relabel import CODES, keep_lazy_bits, relabel, unsupported_error
from devshim_backends._torch.simulation.state import NAME

SIMULATED = SimulatedDevices(FullDeviceError)
SIMULATED.removed_error = RemovedDeviceError


def adopt(tensor: Any, index: int) -> Any:
    """Return a host tensor, with memory of its own, as a GPU's tensor; the GPU takes over the memory and counts it.

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
        if tensor.layout not in sparse.LAYOUTS:
            raise unsupported_error(tensor) from error
        return sparse.move_parts(tensor, torch.device(NAME, index), lambda part: adopt(part, index))
    nbytes = storage.nbytes()
    if nbytes:
        SIMULATED[index].track(storage, nbytes)  # PyTorch keeps this object as long as the storage
    relabelled = relabel(tensor, CODES[index])
    return keep_lazy_bits(relabelled, tensor) if tensor.is_conj() or tensor.is_neg() else relabelled


def require_dtype(tensor: Any, index: int) -> None:
    """Raise for a tensor of a dtype that a GPU cannot hold, such as float64 on one like MPS."""
    name = str(tensor.dtype).removeprefix("torch.")
    if name in SIMULATED.dtypes_lacking:
        SIMULATED.refuse_dtype(SIMULATED[index].device, name)
