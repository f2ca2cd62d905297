"""For each devshim call, the code that a CuPy user would write without devshim. Imports no framework."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class _Template(str):
    """A template for GPUs, with a second template for the host, where arrays are NumPy's."""

    host: str

    def format(self, *args: object, **names: object) -> str:
        """Fill in the template for a device."""
        return (self.host if names.get("device") == "np" else str(self)).format(*args, **names)


def _by_device(gpu: str, host: str) -> _Template:
    template = _Template(gpu)
    template.host = host
    return template


def _creation(function: str, arguments: str = "{args}{dtype}") -> _Template:
    """Return the snippet of a function that both libraries have."""
    return _by_device(f"with {{device}}: x = cp.{function}({arguments})", f"np.{function}({arguments})")


SNIPPETS: Mapping[str, str] = MappingProxyType(
    {
        "device_count": "cp.cuda.runtime.getDeviceCount()",
        "devices": "[cp.cuda.Device(i) for i in range(cp.cuda.runtime.getDeviceCount())]",
        "describe": "cp.cuda.runtime.getDeviceProperties({index})",
        "memory_policy": "# CuPy allocates memory as it needs it",
        "memory_fraction": "cp.get_default_memory_pool().set_limit(fraction={args})  # on each GPU",
        "split": "[place(p, d) for p, d in zip(cp.array_split({x}, {count}, {axis}), {devices})]",
        "gather": _by_device(
            "with {device}: x = cp.concatenate([cp.array(part) for part in parts], {axis})",
            "np.concatenate([cp.asnumpy(part) for part in parts], {axis})",
        ),
        "all_reduce": _by_device(
            "with {device}: total = cp.stack([cp.array(t) for t in ts]).{op}(0)",
            "total = np.stack([cp.asnumpy(t) for t in ts]).{op}(0)",
        ),
        "save": "safetensors.numpy.save_file(cp.asnumpy({x}), {path})",
        "load": _by_device(
            "with {device}: x = cp.array(safetensors.numpy.load_file({path}))", "safetensors.numpy.load_file({path})"
        ),
        "metric_append": "losses.append(loss.copy())",
        "metric_flush": "cp.stack(losses).get()",
        "device_of": "{x}.device",
        "dtype_of": "{x}.dtype",
        "place": _by_device("with {device}: y = cp.asarray({x})", "cp.asnumpy({x})"),
        "copy": _by_device("with {device}: y = cp.array({x})", "np.array(cp.asnumpy({x}))"),
        "to_numpy": "cp.asnumpy({x})",
        "from_numpy": _by_device("with {device}: x = cp.array({args})", "np.array({args})"),
        "asarray": _creation("array"),
        "stack": "cp.stack(tensors)",
        "zeros": _creation("zeros"),
        "ones": _creation("ones"),
        "full": _creation("full"),
        "empty": _creation("empty"),
        "arange": _creation("arange"),
        "linspace": _creation("linspace"),
        "eye": _creation("eye"),
        "uniform": _creation("random.uniform", "{args}"),
        "normal": _creation("random.normal", "{args}"),
        "randint": _creation("random.randint", "{0}, {1}, {2}"),
        "permutation": _creation("random.permutation", "{0}"),
        "bernoulli": _by_device("with {device}: x = cp.random.random({1}) < {0}", "np.random.random({1}) < {0}"),
        "seed": "cp.random.seed({args})  # on each GPU",
        "on": _by_device("with {device}:", "# CuPy has no arrays on the CPU; NumPy has"),
        "set_device": _by_device("{device}.use()", "# CuPy has no arrays on the CPU; NumPy has"),
        "run": _by_device("with {device}: y = f({args})", "f({args})"),
        "synchronize": _by_device("{device}.synchronize()", "# NumPy's operators are complete when they return"),
        "memory": _by_device("{device}.mem_info", "psutil.virtual_memory()"),
        "empty_cache": _by_device(
            "with {device}: cp.get_default_memory_pool().free_all_blocks()", "# NumPy has no cache"
        ),
        "convert": "cp.from_dlpack({x})",
        "try_gpu": "cp.cuda.Device({index})",
        "dtype": "cp.{name}",
    }
)
