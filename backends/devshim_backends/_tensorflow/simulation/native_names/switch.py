"""Switching TensorFlow's own names of GPUs on and off: every module of this package replaces attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devshim.simulation.patching import Patches
from devshim_backends._tensorflow.simulation.native_names import devices, distributed, libraries, names, operators
from devshim_backends._tensorflow.simulation.native_names.internals import (
    builds,
    capsules,
    channels_first,
    clusters,
    compiled_replicas,
    datasets,
    graph_names,
    policies,
    python_functions,
    scopes,
    sessions,
)

if TYPE_CHECKING:
    from devshim_backends._tensorflow.simulation.simulate import TensorflowSimulation

__all__ = ["install", "uninstall"]

_patches = Patches()


def install(backend: TensorflowSimulation) -> None:
    """Let TensorFlow's names of GPUs mean the simulated GPUs."""
    try:
        modules = (
            clusters,
            names,
            scopes,
            operators,
            policies,
            datasets,
            python_functions,
            compiled_replicas,
            builds,
            sessions,
            capsules,
            libraries,
            channels_first,
            distributed,
            devices,
        )
        for module in modules:
            module.install(_patches, backend)
    except BaseException:
        uninstall()
        raise


def uninstall() -> None:
    """Restore every attribute of TensorFlow, the lists of its context, and the devices in graphs."""
    devices.uninstall()
    operators.uninstall()
    _patches.undo()
    policies.uninstall()
    graph_names.restore_graphs()
