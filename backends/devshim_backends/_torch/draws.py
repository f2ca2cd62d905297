"""Random draws on the device itself, and one seed for all of them.

``torch.manual_seed`` restarts the generators of the host and of every accelerator, those not started yet
included.  PyTorch promises ``[low, high)``, yet rounding can reach ``high`` in the low-precision dtypes and for
narrow ranges, so a value that does is put back to ``low``, which is what PyTorch's own CUDA kernel does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from devshim.backend import Backend
from devshim_backends._torch.devices import native

if TYPE_CHECKING:
    from devshim.backend import Tensor
    from devshim.device import Device


class TorchDraws(Backend):
    """The room of draws."""

    def uniform(self, low: float, high: float, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        made = torch.empty(shape, dtype=dtype, device=native(device)).uniform_(low, high)
        return made.masked_fill_(made >= high, low) if low < high else made

    def normal(self, loc: float, scale: float, shape: tuple[int, ...], dtype: Any | None, device: Device) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=native(device)).normal_(loc, scale)

    def seed(self, value: int) -> None:
        torch.manual_seed(value)
