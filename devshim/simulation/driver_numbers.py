"""The numbers that NVIDIA's driver gives to GPUs: ``CUDA_VISIBLE_DEVICES`` hides GPUs from CUDA, and none from it."""

from __future__ import annotations

from devshim.registry import simulation_request

__all__ = ["driver_number"]


def driver_number(index: int) -> int:
    """Return the driver's number of a simulated GPU, from its index in this process."""
    numbers = simulation_request.visible(simulation_request.requested()[0])
    return numbers[index] if index < len(numbers) else index
