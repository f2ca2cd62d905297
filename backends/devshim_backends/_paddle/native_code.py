"""PaddlePaddle code for devshim calls, as templates for a notebook in its own code. Imports no framework.

`devshim.tutorial.transpiler.templates` explains the placeholders. Paddle puts new tensors on GPU 0, so each template
that creates a tensor names the place.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

SETUP = "import paddle"
DEVICES: Mapping[str, str] = MappingProxyType(
    {"cpu": "paddle.CPUPlace()", "gpu": "paddle.CUDAPlace({index})", "value": "{device}", "dtype": '"{name}"'}
)
HELPERS: Mapping[str, str] = MappingProxyType(
    {
        "gpus": '''
def gpus():
    """Return the places of all GPUs; an empty list on a machine without a GPU."""
    return [paddle.CUDAPlace(i) for i in range(paddle.device.cuda.device_count())]
''',
        "try_gpu": '''
def try_gpu(i=0):
    """Return the place of GPU i if it exists, and that of the CPU otherwise."""
    return gpus()[i] if len(gpus()) > i else paddle.CPUPlace()
''',
        "try_all_gpus": '''
def try_all_gpus():
    """Return the places of all GPUs, or of the CPU on a machine without a GPU."""
    return gpus() or [paddle.CPUPlace()]
''',
        "np": "import numpy as np",
        "copy": "import copy",
    }
)
TEMPLATES: Mapping[str, str] = MappingProxyType(
    {
        "device_count": "paddle.device.cuda.device_count()",
        "devices": "[paddle.CPUPlace(), *gpus()]",
        "devices_gpu": "gpus()",
        "try_gpu": "try_gpu({i|$})",
        "try_all_gpus": "try_all_gpus()",
        "device_of": "{x}.place",
        "place": "{x}.to({device})",
        "place_model": "{x}.to({device})",
        "place_tree": "paddle.utils.map_structure(lambda tensor: tensor.to({device}), {x})",
        "copy": "{x}._copy_to({device}, True)",
        "copy_model": "copy.deepcopy({x}).to({device})",
        "copy_tree": "paddle.utils.map_structure(lambda tensor: tensor._copy_to({device}, True), {x})",
        "to_numpy": "{x}.numpy()",
        "from_numpy": "paddle.to_tensor({a}, place={device})",
        "asarray": "paddle.to_tensor({obj}{dtype|, dtype=$}, place={device})",
        "zeros": "paddle.zeros({shape}{dtype|, dtype=$}).to({device})",
        "ones": "paddle.ones({shape}{dtype|, dtype=$}).to({device})",
        "empty": "paddle.empty({shape}{dtype|, dtype=$}).to({device})",
        "full": "paddle.full({shape}, {fill_value}{dtype|, dtype=$}).to({device})",
        "arange": "paddle.arange({start}{stop|, $}{step|, $}{dtype|, dtype=$}).to({device})",
        "linspace": "paddle.linspace({start}, {stop}, {num}{dtype|, dtype=$}).to({device})",
        "eye": "paddle.eye({n_rows}{n_cols|, $}{dtype|, dtype=$}).to({device})",
        "zeros_like": "paddle.zeros_like({x}{dtype|, dtype=$}).to({x}.place)",
        "ones_like": "paddle.ones_like({x}{dtype|, dtype=$}).to({x}.place)",
        "random.seed": "paddle.seed({n})",
        "random.uniform": "paddle.uniform({size}{dtype|, dtype=$}, min={low}, max={high}).to({device})",
        "random.uniform_standard": "paddle.rand({size}{dtype|, dtype=$}).to({device})",
        "random.normal": "({loc} + {scale} * paddle.randn({size}{dtype|, dtype=$})).to({device})",
        "random.normal_standard": "paddle.randn({size}{dtype|, dtype=$}).to({device})",
        "random.randint": "paddle.randint({low}, {high}, {size}{dtype|, dtype=$}).to({device})",
        "random.permutation": "paddle.randperm({n}{dtype|, dtype=$}).to({device})",
        "run": "{fn}({args})",
        "split": (
            "[part._copy_to(d, True) for part, d in zip(paddle.tensor_split({tree}, {count}, {axis}), {devices})]"
        ),
        "gather": "paddle.concat([part.to({device}) for part in {parts}], {axis})",
        "synchronize": "paddle.device.synchronize({device|$})",
        "empty_cache": "paddle.device.cuda.empty_cache()",
    }
)
