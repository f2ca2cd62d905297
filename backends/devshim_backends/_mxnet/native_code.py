"""MXNet code for devshim calls, as templates for a notebook in MXNet's own code. Imports no framework.

`devshim.tutorial.transpiler.templates` explains the placeholders. Both releases understand ``ctx=``.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

SETUP = "import mxnet as mx\n\nmx.npx.set_np()"
DEVICES: Mapping[str, str] = MappingProxyType(
    {"cpu": "mx.cpu()", "gpu": "mx.gpu({index})", "value": "{device}", "dtype": '"{name}"'}
)
HELPERS: Mapping[str, str] = MappingProxyType(
    {
        "try_gpu": '''
def try_gpu(i=0):
    """Return GPU i if it exists, and the CPU otherwise."""
    return mx.gpu(i) if mx.context.num_gpus() > i else mx.cpu()
''',
        "try_all_gpus": '''
def try_all_gpus():
    """Return all GPUs, or the CPU on a machine without a GPU."""
    return [mx.gpu(i) for i in range(mx.context.num_gpus())] or [mx.cpu()]
''',
        "place_tree": '''
def place_tree(tree, device):
    """Return a dict, list or tuple of arrays with each array on a device."""
    if isinstance(tree, dict):
        return {key: place_tree(value, device) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(place_tree(value, device) for value in tree)
    return tree.as_in_ctx(device)
''',
        "copy": "import copy",
    }
)
TEMPLATES: Mapping[str, str] = MappingProxyType(
    {
        "device_count": "mx.context.num_gpus()",
        "devices": "[mx.cpu(), *(mx.gpu(i) for i in range(mx.context.num_gpus()))]",
        "devices_gpu": "[mx.gpu(i) for i in range(mx.context.num_gpus())]",
        "try_gpu": "try_gpu({i|$})",
        "try_all_gpus": "try_all_gpus()",
        "on": "{device}",
        "set_device": "{device}.__enter__()",
        "device_of": "{x}.ctx",
        "place": "{x}.as_in_ctx({device})",
        "place_model": "{x}.reset_ctx({device})\n{y} = {x}",
        "place_tree": "place_tree({x}, {device})",
        "copy": "{x}.copyto({device})",
        "copy_model": "{y} = copy.deepcopy({x})\n{y}.reset_ctx({device})",
        "to_numpy": "{x}.asnumpy()",
        "from_numpy": "mx.np.array({a}, dtype={a}.dtype, ctx={device})",
        "asarray": "mx.np.array({obj}{dtype|, dtype=$}{device|, ctx=$})",
        "zeros": "mx.np.zeros({shape}{dtype|, dtype=$}{device|, ctx=$})",
        "ones": "mx.np.ones({shape}{dtype|, dtype=$}{device|, ctx=$})",
        "empty": "mx.np.empty({shape}{dtype|, dtype=$}{device|, ctx=$})",
        "full": "mx.np.full({shape}, {fill_value}{dtype|, dtype=$}{device|, ctx=$})",
        "arange": "mx.np.arange({start}{stop|, $}{step|, $}{dtype|, dtype=$}{device|, ctx=$})",
        "linspace": "mx.np.linspace({start}, {stop}, {num}{dtype|, dtype=$}{device|, ctx=$})",
        "eye": "mx.np.eye({n_rows}{n_cols|, $}{dtype|, dtype=$}{device|, ctx=$})",
        "zeros_like": "mx.np.zeros_like({x}{dtype|, dtype=$})",
        "ones_like": "mx.np.ones_like({x}{dtype|, dtype=$})",
        "random.seed": "mx.random.seed({n})",
        "random.uniform": "mx.np.random.uniform({low}, {high}, {size}{dtype|, dtype=$}{device|, ctx=$})",
        "random.uniform_standard": "mx.np.random.uniform(size={size}{dtype|, dtype=$}{device|, ctx=$})",
        "random.normal": "mx.np.random.normal({loc}, {scale}, {size}{dtype|, dtype=$}{device|, ctx=$})",
        "random.normal_standard": "mx.np.random.normal(size={size}{dtype|, dtype=$}{device|, ctx=$})",
        "random.randint": "mx.np.random.randint({low}, {high}, {size}{dtype|, dtype=$}{device|, ctx=$})",
        "run": "{fn}({args})",
        "split": "mx.gluon.utils.split_and_load({tree}, {devices}, batch_axis={axis}, even_split=False)",
        "gather": "mx.np.concatenate([part.as_in_ctx({device}) for part in {parts}], {axis})",
        "synchronize": "mx.npx.waitall()",
        "empty_cache": "{device}.empty_cache()",
    }
)
