"""Move a split model's activations to the device of the part that needs them; adapters call this from their hooks.

The copy takes the same path as every other copy (`transfers.engine`), so that it is checked, counted and refused
in the same way, and gradients flow back through it.
"""

from __future__ import annotations

from devshim.tensors import placing

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device

__all__ = ["move_activation"]


def move_activation(x: Tensor, device: Device) -> Tensor:
    """Return a tensor on a device: the same object if it is there, otherwise a copy through which gradients flow."""
    return placing.place(x, device)
