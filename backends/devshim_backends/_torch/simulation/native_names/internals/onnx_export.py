"""``torch.onnx.export`` of a script: the exporter gets the graph that it would get on a card.

The operators that `script_graphs` adds to a script cannot be exported, and the exporter reads the device of a tensor.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import torch

from devshim.simulation.late_patches import LatePatches
from devshim.simulation.patching import Patches
from devshim_backends._torch.simulation.native_names.internals.script_graphs import restore
from devshim_backends._torch.simulation.native_names.names import SHOWN

__all__ = ["install", "uninstall"]

_EXPORTER = "torch.onnx._internal.torchscript_exporter"


def _restore_first(patches: Patches, exporter: ModuleType) -> None:
    real = exporter._optimize_graph

    @functools.wraps(real)
    def optimize_graph(graph: Any, *args: Any, **kwargs: Any) -> Any:
        torch._C._jit_pass_inline(graph)  # the first step of the function
        restore(graph)
        return real(graph, *args, **kwargs)

    patches.replace(exporter, "_optimize_graph", optimize_graph)


def _show_devices(patches: Patches, utilities: ModuleType) -> None:
    real = utilities.get_device_from_value

    @functools.wraps(real)
    def get_device_from_value(value: Any) -> Any:
        device = real(value)
        return SHOWN.get(device, device)

    patches.replace(utilities, "get_device_from_value", get_device_from_value)


_LATE = (  # PyTorch itself does not import these modules
    LatePatches(f"{_EXPORTER}.utils", "_optimize_graph", _restore_first),
    LatePatches(f"{_EXPORTER}.jit_utils", "get_device_from_value", _show_devices),
)


def install(patches: Patches) -> None:
    """Change the exporter, now or when it is imported."""
    for each in _LATE:
        each.install()


def uninstall() -> None:
    """Restore the exporter."""
    for each in _LATE:
        each.undo()
