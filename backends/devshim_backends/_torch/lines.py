"""The native line each devshim call stands for, as a PyTorch user writes it. Imports no framework."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

LINES: Mapping[str, str] = MappingProxyType(
    {
        "device_count": "torch.cuda.device_count()",
        "device_of": "{x}.device",
        "place": "{x}.to({device})",
        "copy": "{x}.to({device}, copy=True)",
        "to_numpy": "{x}.detach().cpu().numpy().copy()",
        "from_numpy": "torch.tensor({args}, device={device})",
        "asarray": "torch.tensor({args}{dtype}, device={device})",
        "zeros": "torch.zeros({args}{dtype}, device={device})",
        "ones": "torch.ones({args}{dtype}, device={device})",
        "full": "torch.full({args}{dtype}, device={device})",
        "empty": "torch.empty({args}{dtype}, device={device})",
        "arange": "torch.arange({args}{dtype}, device={device})",
        "linspace": "torch.linspace({args}{dtype}, device={device})",
        "eye": "torch.ones({0}, {1}{dtype}, device={device}).triu({2}).tril({2})",
        "uniform": "torch.empty({2}{dtype}, device={device}).uniform_({0}, {1})",
        "normal": "torch.empty({2}{dtype}, device={device}).normal_({0}, {1})",
        "seed": "torch.manual_seed({args})",
        "on": "with torch.device({device}):",
        "set_device": "torch.set_default_device({device})",
        "run": "f({args})",
        "synchronize": "torch.cuda.synchronize({index})",
        "memory": "torch.cuda.mem_get_info({index})",
        "empty_cache": "torch.cuda.empty_cache()",
        "convert": "torch.from_dlpack({x})",
        "try_gpu": 'torch.device("cuda:{index}" if torch.cuda.device_count() > {index} else "cpu")',
        "dtype": "torch.{name}",
    }
)
