"""The names that an adapter needs, under one import path: for distributions that bring their own backend.

``backends/README.md`` builds an adapter from only this module. The modules behind it may move; this path stays.
"""

from devshim.contract.backend import FEATURES, Backend, Gap, Tensor
from devshim.contract.blocks import BlockRules
from devshim.contract.fast_paths import FastPaths
from devshim.contract.models import Block, Layer, Leaf, Weight
from devshim.devices import cuda, host, nvml
from devshim.devices.device import CPU, Device
from devshim.devices.dtypes import DTYPES, dtype_name, numpy_dtype, widest
from devshim.devices.info import DeviceInfo, MemoryInfo
from devshim.devices.ranges import require_all_fit
from devshim.errors import messages
from devshim.transfers import dlpack

__all__ = [
    "CPU",
    "DTYPES",
    "FEATURES",
    "Backend",
    "Block",
    "BlockRules",
    "Device",
    "DeviceInfo",
    "FastPaths",
    "Gap",
    "Layer",
    "Leaf",
    "MemoryInfo",
    "Tensor",
    "Weight",
    "cuda",
    "dlpack",
    "dtype_name",
    "host",
    "messages",
    "numpy_dtype",
    "nvml",
    "require_all_fit",
    "widest",
]
