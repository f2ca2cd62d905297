"""The native line for each devshim call, as an MXNet user writes it. Imports no framework.

Both releases understand ``ctx=``: 1.9 has no other name, and 2.0 accepts it for ``device=``.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

SNIPPETS: Mapping[str, str] = MappingProxyType(
    {
        "device_count": "mx.context.num_gpus()",
        "devices": "[mx.gpu(i) for i in range(mx.context.num_gpus())]",
        "describe": "mx.context.gpu_memory_info({index})",
        "memory_policy": "# MXNet takes memory as it needs it",
        "memory_fraction": 'os.environ["MXNET_GPU_MEM_POOL_RESERVE"] = str(100 - 100 * {args})',
        "place_model": "{x}.reset_ctx({device})",
        "copy_model": "new = copy.deepcopy({x}); new.reset_ctx({device})",
        "place_parameter": "{x}.collect_params()[{path}].reset_ctx({device})",
        "place_optimizer": "{x}.load_states(file)  # after save_states and reset_ctx: it cannot move",
        "copy_optimizer": "copy.deepcopy({x})",
        "device_of_model": "next(iter({x}.collect_params().values())).list_ctx()",
        "split": "gluon.utils.split_and_load({x}, {devices}, batch_axis={axis}, even_split=False)",
        "gather": "mx.np.concatenate([part.as_in_ctx({device}) for part in parts], {axis})",
        "all_reduce": "total = mx.np.stack([t.as_in_ctx({device}) for t in ts]).{op}(0); [total.copyto(t) for t in ts]",
        "save": "mx.npx.save({path}, {x})",
        "save_model": "{x}.save_parameters({path})",
        "save_optimizer": "{x}.save_states({path})",
        "load": "mx.npx.load({path})",
        "load_model": "{x}.load_parameters({path})",
        "load_optimizer": "{x}.load_states({path})",
        "metric_append": "losses.append(loss.copy())",
        "metric_flush": "mx.np.stack(losses).asnumpy()",
        "device_of": "{x}.ctx",
        "dtype_of": "{x}.dtype",
        "place": "{x}.as_in_ctx({device})",
        "copy": "{x}.copyto({device})",
        "to_numpy": "{x}.asnumpy()",
        "from_numpy": "mx.np.array({args}, dtype={args}.dtype, ctx={device})",
        "asarray": "mx.np.array({args}{dtype}, ctx={device})",
        "stack": "mx.np.stack(tensors)",
        "zeros": "mx.np.zeros({args}{dtype}, ctx={device})",
        "ones": "mx.np.ones({args}{dtype}, ctx={device})",
        "full": "mx.np.full({args}{dtype}, ctx={device})",
        "empty": "mx.np.empty({args}{dtype}, ctx={device})",
        "arange": "mx.np.arange({args}{dtype}, ctx={device})",
        "linspace": "mx.np.linspace({args}{dtype}, ctx={device})",
        "eye": "mx.np.eye({args}{dtype}, ctx={device})",
        "uniform": "mx.np.random.uniform({args}{dtype}, ctx={device})",
        "normal": "mx.np.random.normal({args}{dtype}, ctx={device})",
        "randint": "mx.np.random.randint({0}, {1}, {2}{dtype}, ctx={device})",
        "permutation": "mx.np.argsort(mx.np.random.uniform(size={0}, ctx={device}))",
        "bernoulli": "mx.np.random.uniform(size={1}, ctx={device}) < {0}",
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
