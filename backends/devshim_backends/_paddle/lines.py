"""The native line each devshim call stands for, as a PaddlePaddle user writes it. Imports no framework."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

LINES: Mapping[str, str] = MappingProxyType(
    {
        "device_count": "paddle.device.cuda.device_count()",
        "device_of": "{x}.place",
        "place": "{x}._copy_to({device}, True)  # inside a PyLayer: .to() alone cuts the gradient",
        "copy": "{x}._copy_to({device}, True)  # inside a PyLayer: .to() alone cuts the gradient",
        "to_numpy": "{x}.numpy()",
        "from_numpy": "paddle.to_tensor({args}, place={device})",
        "asarray": "paddle.to_tensor({args}{dtype}, place={device})",
        "zeros": "paddle.zeros({args}{dtype}).to({device})",
        "ones": "paddle.ones({args}{dtype}).to({device})",
        "full": "paddle.full({args}{dtype}).to({device})",
        "empty": "paddle.empty({args}{dtype}).to({device})",
        "arange": "paddle.arange({args}{dtype}).to({device})",
        "linspace": "paddle.linspace({args}{dtype}).to({device})",
        "eye": "paddle.to_tensor(numpy.eye({args}, dtype='float32'){dtype}, place={device})",
        "uniform": "paddle.uniform({2}{dtype}, min={0}, max={1}).to({device})",
        "normal": "paddle.normal({args}).to({device})",
        "seed": "paddle.seed({args})",
        "on": "paddle.device.set_device({device})",
        "set_device": "paddle.device.set_device({device})",
        "run": "f({args})",
        "synchronize": "paddle.device.synchronize({device})",
        "memory": "paddle.device.cuda.memory_allocated({device})",
        "empty_cache": "paddle.device.cuda.empty_cache()",
        "convert": "paddle.utils.dlpack.from_dlpack(a.__dlpack__())",
        "try_gpu": ("paddle.CUDAPlace({index}) if paddle.device.cuda.device_count() > {index} else paddle.CPUPlace()"),
        "dtype": "paddle.{name}",
    }
)
