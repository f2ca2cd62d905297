"""Carrying a split model's activations to the part that needs them: what adapters call from their hooks.

Such a copy takes the one path that every copy takes (`transfers.engine`), so that it is checked, counted and refused
like any other, and gradients flow back through it.
"""

from __future__ import annotations

from devshim.tensors import placing

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device

__all__ = ["carry"]


def carry(x: Tensor, device: Device) -> Tensor:
    """Return a tensor on a device: itself where it is there, else a copy through which gradients flow."""
    return placing.place(x, device)
