"""The module of `cupy.cuda` that has `Device`."""

from cupy.cuda import Device

__all__ = ["Device"]
