"""TensorFlow's own names of GPUs, such as ``/GPU:1``, for the simulated GPUs: ``ds.simulate(2, native_names=True)``.

Requirements these modules answer:

* A program sees ``GPU:0`` and ``GPU:1``; below Python, TensorFlow computes on the logical CPUs ``CPU:1`` and ``CPU:2``.
  Python reads and writes device names in few places, and these translate (`names`, `scopes`, `datasets`).
* The lists of devices and their configuration are TensorFlow's own code, on a list that has the GPUs (`lists`).
* What has no scope runs on ``GPU:0``, as on a machine with GPUs (`operators`). `policies` decides what is copied there.
* A name of a GPU that is not there is refused. With soft placement, TensorFlow would compute on the host.

Everything is replaced through one `Patches`, which restores it. Nothing here is imported while native names are off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from devshim.simulation.patching import Patches
from devshim_backends._tensorflow.simulation.native_names import (
    builds,
    cudnn,
    datasets,
    lists,
    names,
    nccl,
    operators,
    policies,
    scopes,
)

if TYPE_CHECKING:
    from devshim_backends._tensorflow.simulation.simulate import TensorflowSimulation

__all__ = ["install", "uninstall"]

_patches = Patches()


def install(backend: TensorflowSimulation) -> None:
    """Let TensorFlow's names of GPUs mean the simulated GPUs."""
    try:
        for module in (names, scopes, operators, policies, datasets, builds, cudnn, nccl, lists):
            module.install(_patches, backend)
    except BaseException:
        uninstall()
        raise


def uninstall() -> None:
    """Restore every attribute of TensorFlow, and the lists of its context."""
    lists.uninstall()
    _patches.undo()
    policies.uninstall()
