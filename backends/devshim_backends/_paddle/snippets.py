"""The native line for each devshim call, as a PaddlePaddle user writes it. Imports no framework."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

SNIPPETS: Mapping[str, str] = MappingProxyType(
    {
        "device_count": "paddle.device.cuda.device_count()",
        "devices": "[paddle.CUDAPlace(i) for i in range(paddle.device.cuda.device_count())]",
        "describe": "paddle.device.cuda.get_device_properties({index})",
        "memory_policy": 'os.environ["FLAGS_allocator_strategy"] = "auto_growth"',
        "memory_fraction": 'os.environ["FLAGS_fraction_of_gpu_memory_to_use"] = "{args}"',
        "place_model": "{x}.to({device})",
        "copy_model": "copy.deepcopy({x}).to({device})",
        "place_parameter": "{x}.state_dict()[{path}]._copy_to({device}, True)  # Paddle moves only whole layers",
        "place_optimizer": "{x}.set_state_dict({{k: v._copy_to({device}, True) for k, v in {x}.state_dict().items()}})",
        "copy_optimizer": "copy.deepcopy({x})",
        "device_of_model": "{x}.parameters()[0].place",
        "split": "[p._copy_to(d, True) for p, d in zip(paddle.tensor_split({x}, {count}, {axis}), {devices})]",
        "gather": "paddle.concat([part._copy_to({device}, True) for part in parts], {axis})",
        "all_reduce": "total = paddle.stack([t._copy_to({device}, True) for t in ts]).{op}(0)",
        "save": "safetensors.paddle.save_file({x}, {path})",
        "save_model": "paddle.save({x}.state_dict(), {path})",
        "save_optimizer": "paddle.save({x}.state_dict(), {path})",
        "load": "{{k: v._copy_to({device}, True) for k, v in safetensors.paddle.load_file({path}).items()}}",
        "load_model": "{x}.set_state_dict(paddle.load({path}))",
        "load_optimizer": "{x}.set_state_dict(paddle.load({path}))",
        "metric_append": "losses.append(loss.detach().clone())",
        "metric_flush": "paddle.stack(losses).numpy()",
        "device_of": "{x}.place",
        "dtype_of": "{x}.dtype",
        "place": "{x}._copy_to({device}, True)  # inside a PyLayer: .to() alone cuts the gradient",
        "copy": "{x}._copy_to({device}, True)  # inside a PyLayer: .to() alone cuts the gradient",
        "to_numpy": "{x}.numpy()",
        "from_numpy": "paddle.to_tensor({args}, place={device})",
        "asarray": "paddle.to_tensor({args}{dtype}, place={device})",
        "stack": "paddle.stack(tensors)",
        "zeros": "paddle.zeros({args}{dtype}).to({device})",
        "ones": "paddle.ones({args}{dtype}).to({device})",
        "full": "paddle.full({args}{dtype}).to({device})",
        "empty": "paddle.empty({args}{dtype}).to({device})",
        "arange": "paddle.arange({args}{dtype}).to({device})",
        "linspace": "paddle.linspace({args}{dtype}).to({device})",
        "eye": "paddle.to_tensor(numpy.eye({args}, dtype='float32'){dtype}, place={device})",
        "uniform": "paddle.uniform({2}{dtype}, min={0}, max={1}).to({device})",
        "normal": "paddle.normal({args}).to({device})",
        "randint": "paddle.randint({0}, {1}, {2}{dtype}).to({device})",
        "permutation": "paddle.randperm({0}{dtype}).to({device})",
        "bernoulli": "paddle.bernoulli(paddle.full({1}, {0})).to({device})",
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
