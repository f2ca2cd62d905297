"""The native line each devshim call stands for, as an MXNet user writes it. Imports no framework.

``ctx=`` is what both releases understand: 1.9 knows nothing else, and 2.0 takes it for ``device=``.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

LINES: Mapping[str, str] = MappingProxyType(
    {
        "device_count": "mx.context.num_gpus()",
        "device_of": "{x}.ctx",
        "place": "{x}.as_in_ctx({device})",
        "copy": "{x}.copyto({device})",
        "to_numpy": "{x}.asnumpy()",
        "from_numpy": "mx.np.array({args}, dtype={args}.dtype, ctx={device})",
        "asarray": "mx.np.array({args}{dtype}, ctx={device})",
        "zeros": "mx.np.zeros({args}{dtype}, ctx={device})",
        "ones": "mx.np.ones({args}{dtype}, ctx={device})",
        "full": "mx.np.full({args}{dtype}, ctx={device})",
        "empty": "mx.np.empty({args}{dtype}, ctx={device})",
        "arange": "mx.np.arange({args}{dtype}, ctx={device})",
        "linspace": "mx.np.linspace({args}{dtype}, ctx={device})",
        "eye": "mx.np.eye({args}{dtype}, ctx={device})",
        "uniform": "mx.np.random.uniform({args}{dtype}, ctx={device})",
        "normal": "mx.np.random.normal({args}{dtype}, ctx={device})",
        "seed": "mx.random.seed({args})",
        "on": "with {device}:",
        "set_device": "{device}.__enter__()",
        "run": "f({args})",
        "synchronize": "mx.nd.waitall()",
        "memory": "mx.context.gpu_memory_info({index})",
        "empty_cache": "{device}.empty_cache()",
        "convert": "mx.nd.from_dlpack({x}.__dlpack__()).as_np_ndarray()",
        "try_gpu": "mx.gpu({index}) if mx.context.num_gpus() > {index} else mx.cpu()",
        "dtype": '"{name}"',
    }
)
