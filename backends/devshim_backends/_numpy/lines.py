"""The NumPy line each devshim call stands for."""

from __future__ import annotations

from collections.abc import Mapping

LINES: Mapping[str, str] = {
    "dtype": "np.{name}",
    "device_count": "0  # NumPy computes on the CPU alone",
    "try_gpu": '"cpu"',
    "device_of": '"cpu"  # {x}.device from NumPy 2.0 on',
    "place": "np.asarray({x})",
    "copy": "np.array({x}, copy=True)",
    "to_numpy": "np.array({x}, copy=True)",
    "from_numpy": "np.array({args}, copy=True{dtype})",
    "asarray": "np.array({args}{dtype})",
    "zeros": "np.zeros({args}{dtype})",
    "ones": "np.ones({args}{dtype})",
    "full": "np.full({args}{dtype})",
    "empty": "np.empty({args}{dtype})",
    "arange": "np.arange({args}{dtype})",
    "linspace": "np.linspace({args}{dtype})",
    "eye": "np.eye({args}{dtype})",
    "uniform": "np.random.uniform({args})",
    "normal": "np.random.normal({args})",
    "seed": "np.random.seed({args})",
    "on": "# NumPy's operators follow their arguments",
    "set_device": "# NumPy has one device",
    "run": "f({args})",
    "synchronize": "# NumPy's operators are done when they return",
    "memory": "# NumPy does not count memory",
    "empty_cache": "# NumPy keeps no cache",
    "convert": "np.from_dlpack({x})",
}
