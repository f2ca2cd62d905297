"""For each devshim call, the code that a CuPy user would write without devshim. Imports no framework."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class _Line(str):
    """A template for GPUs, with a second template for the host, where arrays are NumPy's."""

    host: str

    def format(self, *args: object, **names: object) -> str:
        """Fill in the template for a device."""
        return (self.host if names.get("device") == "np" else str(self)).format(*args, **names)


def _line(card: str, host: str) -> _Line:
    made = _Line(card)
    made.host = host
    return made


def _made(function: str, arguments: str = "{args}{dtype}") -> _Line:
    """Return the snippet of a function that both libraries have."""
    return _line(f"with {{device}}: x = cp.{function}({arguments})", f"np.{function}({arguments})")


SNIPPETS: Mapping[str, str] = MappingProxyType(
    {
        "device_count": "cp.cuda.runtime.getDeviceCount()",
        "devices": "[cp.cuda.Device(i) for i in range(cp.cuda.runtime.getDeviceCount())]",
        "describe": "cp.cuda.runtime.getDeviceProperties({index})",
        "memory_policy": "# CuPy allocates memory as it needs it",
        "memory_fraction": "cp.get_default_memory_pool().set_limit(fraction={args})  # on each GPU",
        "split": "[place(p, d) for p, d in zip(cp.array_split({x}, {count}, {axis}), {devices})]",
        "gather": _line(
            "with {device}: x = cp.concatenate([cp.array(part) for part in parts], {axis})",
            "np.concatenate([cp.asnumpy(part) for part in parts], {axis})",
        ),
        "all_reduce": _line(
            "with {device}: total = cp.stack([cp.array(t) for t in ts]).{op}(0)",
            "total = np.stack([cp.asnumpy(t) for t in ts]).{op}(0)",
        ),
        "save": "safetensors.numpy.save_file(cp.asnumpy({x}), {path})",
        "load": _line(
            "with {device}: x = cp.array(safetensors.numpy.load_file({path}))", "safetensors.numpy.load_file({path})"
        ),
        "metric_append": "losses.append(loss.copy())",
        "metric_flush": "cp.stack(losses).get()",
        "device_of": "{x}.device",
        "place": _line("with {device}: y = cp.asarray({x})", "cp.asnumpy({x})"),
        "copy": _line("with {device}: y = cp.array({x})", "np.array(cp.asnumpy({x}))"),
        "to_numpy": "cp.asnumpy({x})",
        "from_numpy": _line("with {device}: x = cp.array({args})", "np.array({args})"),
        "asarray": _made("array"),
        "stack": "cp.stack(tensors)",
        "zeros": _made("zeros"),
        "ones": _made("ones"),
        "full": _made("full"),
        "empty": _made("empty"),
        "arange": _made("arange"),
        "linspace": _made("linspace"),
        "eye": _made("eye"),
        "uniform": _made("random.uniform", "{args}"),
        "normal": _made("random.normal", "{args}"),
        "seed": "cp.random.seed({args})  # on each GPU",
        "on": _line("with {device}:", "# CuPy has no arrays on the CPU; NumPy has"),
        "set_device": _line("{device}.use()", "# CuPy has no arrays on the CPU; NumPy has"),
        "run": _line("with {device}: y = f({args})", "f({args})"),
        "synchronize": _line("{device}.synchronize()", "# NumPy's operators are complete when they return"),
        "memory": _line("{device}.mem_info", "psutil.virtual_memory()"),
        "empty_cache": _line("with {device}: cp.get_default_memory_pool().free_all_blocks()", "# NumPy has no cache"),
        "convert": "cp.from_dlpack({x})",
        "try_gpu": "cp.cuda.Device({index})",
        "dtype": "cp.{name}",
    }
)
