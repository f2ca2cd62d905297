"""The properties of a simulated GPU that programs for CUDA ask for: the same on every framework."""

from __future__ import annotations

__all__ = ["CAPABILITY", "MULTIPROCESSORS"]

CAPABILITY = (8, 0)
"""The compute capability: that of an NVIDIA A100, the first one with bfloat16 and TF32."""
MULTIPROCESSORS = 1
"""The number of multiprocessors."""
