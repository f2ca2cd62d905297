"""The native PyTorch line that each devshim call replaces. Imports no framework."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

SNIPPETS: Mapping[str, str] = MappingProxyType(
    {
        "device_count": "torch.cuda.device_count()",
        "devices": '[torch.device("cuda", i) for i in range(torch.cuda.device_count())]',
        "describe": "torch.cuda.get_device_properties({index})",
        "memory_policy": "# not needed: PyTorch allocates memory as it needs it",
        "memory_fraction": "torch.cuda.set_per_process_memory_fraction({args})",
        "place_model": "{x}.to({device})",
        "copy_model": "copy.deepcopy({x}).to({device})",
        "place_parameter": "p = {x}.get_parameter({path}); p.data = p.data.to({device})",
        "place_optimizer": "{x}.load_state_dict({x}.state_dict())  # copies its state to the devices of the parameters",
        "copy_optimizer": "copy.deepcopy({x})",
        "device_of_model": "next({x}.parameters()).device",
        "split": "[p.to(d, copy=True) for p, d in zip({x}.tensor_split({count}, {axis}), {devices})]",
        "gather": "torch.cat([part.to({device}) for part in parts], {axis})",
        "all_reduce": "total = torch.stack([t.to({device}) for t in ts]).{reduced}(0); [t.copy_(total) for t in ts]",
        "save": "safetensors.torch.save_file({x}, {path})",
        "save_model": "safetensors.torch.save_model({x}, {path})",
        "save_optimizer": "torch.save({x}.state_dict(), {path})",
        "load": "safetensors.torch.load_file({path}, device={device})",
        "load_model": "safetensors.torch.load_model({x}, {path})",
        "load_optimizer": "{x}.load_state_dict(torch.load({path}))",
        "metric_append": "losses.append(loss.detach().clone())",
        "metric_flush": "torch.stack(losses).cpu().numpy()",
        "device_of": "{x}.device",
        "dtype_of": "{x}.dtype",
        "place": "{x}.to({device})",
        "copy": "{x}.to({device}, copy=True)",
        "to_numpy": "{x}.detach().cpu().numpy().copy()",
        "from_numpy": "torch.tensor({args}, device={device})",
        "asarray": "torch.tensor({args}{dtype}, device={device})",
        "stack": "torch.stack(tensors)",
        "zeros": "torch.zeros({args}{dtype}, device={device})",
        "ones": "torch.ones({args}{dtype}, device={device})",
        "full": "torch.full({args}{dtype}, device={device})",
        "empty": "torch.empty({args}{dtype}, device={device})",
        "arange": "torch.arange({args}{dtype}, device={device})",
        "linspace": "torch.linspace({args}{dtype}, device={device})",
        "eye": "torch.ones({0}, {1}{dtype}, device={device}).triu({2}).tril({2})",
        "uniform": "torch.empty({2}{dtype}, device={device}).uniform_({0}, {1})",
        "normal": "torch.empty({2}{dtype}, device={device}).normal_({0}, {1})",
        "randint": "torch.randint({0}, {1}, {2}{dtype}, device={device})",
        "permutation": "torch.randperm({0}{dtype}, device={device})",
        "bernoulli": "torch.empty({1}{dtype}, device={device}).bernoulli_({0})",
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

_MPS = {
    "devices": '[torch.device("mps")] * torch.mps.device_count()',
    "describe": "torch.backends.mps.get_name()",
    "memory_fraction": "torch.mps.set_per_process_memory_fraction({args})",
    "synchronize": "torch.mps.synchronize()",
    "memory": "torch.mps.driver_allocated_memory()",
    "try_gpu": 'torch.device("mps" if torch.backends.mps.is_available() else "cpu")',
}
"""The lines for an Apple GPU that differ by more than the name of the module."""


def snippet_for(gpu_type: str, call: str) -> str | None:
    """Return the line of a call for GPUs of a type, such as ``"cuda"``, ``"mps"`` or ``"xpu"``."""
    line = _MPS.get(call) if gpu_type == "mps" else None
    line = line or SNIPPETS.get(call)
    if line is None or gpu_type == "cuda":
        return line
    return line.replace("torch.cuda.", f"torch.{gpu_type}.").replace('"cuda', f'"{gpu_type}')
