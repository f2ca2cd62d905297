"""The numbers and UUIDs of GPUs in NVIDIA's driver: ``CUDA_VISIBLE_DEVICES`` hides GPUs from CUDA, and none from it."""

from __future__ import annotations

from devshim.registry import simulation_request
from devshim.registry.simulation_request import uuid

__all__ = ["driver_number", "uuid"]


def driver_number(index: int) -> int:
    """Return the driver's number of a simulated GPU, from its index in this process."""
    numbers = simulation_request.visible_indices(simulation_request.full_request()[0])
    return numbers[index] if index < len(numbers) else index
