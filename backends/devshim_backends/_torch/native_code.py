"""PyTorch code for devshim calls, as templates for a notebook in PyTorch's own code. Imports no framework.

`devshim.tutorial.transpiler.templates` explains the placeholders.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

SETUP = "import torch"
DEVICES: Mapping[str, str] = MappingProxyType(
    {"cpu": '"cpu"', "gpu": '"cuda:{index}"', "value": "torch.device({device})", "dtype": "torch.{name}"}
)
HELPERS: Mapping[str, str] = MappingProxyType(
    {
        "try_gpu": '''
def try_gpu(i=0):
    """Return GPU i if it exists, and the CPU otherwise."""
    return torch.device(f"cuda:{i}" if torch.cuda.device_count() > i else "cpu")
''',
        "try_all_gpus": '''
def try_all_gpus():
    """Return all GPUs, or the CPU on a machine without a GPU."""
    return [torch.device("cuda", i) for i in range(torch.cuda.device_count())] or [torch.device("cpu")]
''',
        "copy": "import copy",
        "tree_map_only": "from torch.utils._pytree import tree_map_only",
    }
)
TEMPLATES: Mapping[str, str] = MappingProxyType(
    {
        "device_count": "torch.cuda.device_count()",
        "devices": '[torch.device("cpu"), *(torch.device("cuda", i) for i in range(torch.cuda.device_count()))]',
        "devices_gpu": '[torch.device("cuda", i) for i in range(torch.cuda.device_count())]',
        "try_gpu": "try_gpu({i|$})",
        "try_all_gpus": "try_all_gpus()",
        "on": "torch.device({device})",
        "set_device": "torch.set_default_device({device})",
        "device_of": "{x}.device",
        "place": "{x}.to({device})",
        "place_model": "{x}.to({device})",
        "place_tree": "tree_map_only(torch.Tensor, lambda tensor: tensor.to({device}), {x})",
        "copy": "{x}.to({device}, copy=True)",
        "copy_model": "copy.deepcopy({x}).to({device})",
        "copy_tree": "tree_map_only(torch.Tensor, lambda tensor: tensor.to({device}, copy=True), {x})",
        "to_numpy": "{x}.detach().cpu().numpy()",
        "from_numpy": "torch.tensor({a}{device|, device=$})",
        "asarray": "torch.tensor({obj}{dtype|, dtype=$}{device|, device=$})",
        "zeros": "torch.zeros({shape}{dtype|, dtype=$}{device|, device=$})",
        "ones": "torch.ones({shape}{dtype|, dtype=$}{device|, device=$})",
        "empty": "torch.empty({shape}{dtype|, dtype=$}{device|, device=$})",
        "full": "torch.full({shape}, {fill_value}{dtype|, dtype=$}{device|, device=$})",
        "arange": "torch.arange({start}{stop|, $}{step|, $}{dtype|, dtype=$}{device|, device=$})",
        "linspace": "torch.linspace({start}, {stop}, {num}{dtype|, dtype=$}{device|, device=$})",
        "eye": "torch.eye({n_rows}{n_cols|, $}{dtype|, dtype=$}{device|, device=$})",
        "zeros_like": "torch.zeros_like({x}{dtype|, dtype=$}{device|, device=$})",
        "ones_like": "torch.ones_like({x}{dtype|, dtype=$}{device|, device=$})",
        "random.seed": "torch.manual_seed({n})",
        "random.uniform": "torch.empty({size}{dtype|, dtype=$}{device|, device=$}).uniform_({low}, {high})",
        "random.uniform_standard": "torch.rand({size}{dtype|, dtype=$}{device|, device=$})",
        "random.normal": "torch.empty({size}{dtype|, dtype=$}{device|, device=$}).normal_({loc}, {scale})",
        "random.normal_standard": "torch.randn({size}{dtype|, dtype=$}{device|, device=$})",
        "random.randint": "torch.randint({low}, {high}, {size}{dtype|, dtype=$}{device|, device=$})",
        "random.permutation": "torch.randperm({n}{dtype|, dtype=$}{device|, device=$})",
        "run": "{fn}({args})",
        "split": "[part.to(d, copy=True) for part, d in zip({tree}.tensor_split({count}, {axis}), {devices})]",
        "gather": "torch.cat([part.to({device}) for part in {parts}], {axis})",
        "synchronize": "torch.cuda.synchronize({device|$})",
        "empty_cache": "torch.cuda.empty_cache()",
    }
)
