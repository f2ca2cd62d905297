"""The PaddlePaddle backend: one class that combines the adapter's mixins."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import paddle

from devshim_backends._paddle.capabilities import GAPS, LIMITS
from devshim_backends._paddle.collectives import PaddleCollectives
from devshim_backends._paddle.creation import PaddleCreation
from devshim_backends._paddle.devices import PaddleDevices, core
from devshim_backends._paddle.dlpack import PaddleDlpack
from devshim_backends._paddle.gradients import PaddleGradients
from devshim_backends._paddle.import_hooks import exclude_from_compilers
from devshim_backends._paddle.internals import cuda_context
from devshim_backends._paddle.models.blocks import PaddleBlocks
from devshim_backends._paddle.models.extra_state import PaddleExtraState
from devshim_backends._paddle.models.models import PaddleModels
from devshim_backends._paddle.namespace import PaddleNamespace
from devshim_backends._paddle.random import PaddleRandom
from devshim_backends._paddle.ranks import PaddleRanks
from devshim_backends._paddle.runtime import PaddleRuntime
from devshim_backends._paddle.scopes import PaddleScopes
from devshim_backends._paddle.simulation.removed_gpus import PaddleRemovedGpus
from devshim_backends._paddle.simulation.simulate import PaddleSimulation
from devshim_backends._paddle.snippets import SNIPPETS
from devshim_backends._paddle.transfers.implicit import PaddleTransferHooks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devshim.contract.backend import Gap


class PaddleBackend(
    PaddleTransferHooks,
    PaddleRemovedGpus,
    PaddleDevices,
    PaddleCreation,
    PaddleRandom,
    PaddleScopes,
    PaddleRuntime,
    PaddleSimulation,
    PaddleModels,
    PaddleExtraState,
    PaddleBlocks,
    PaddleGradients,
    PaddleCollectives,
    PaddleRanks,
    PaddleNamespace,
    PaddleDlpack,  # brings PaddleTensors, on which it builds
):
    """PaddlePaddle 3.0 and newer: CUDA and ROCm cards as ``gpu``, XPUs, and plug-in devices by their kinds' names."""

    name: ClassVar[str] = "paddle"
    title: ClassVar[str] = "PaddlePaddle"
    gaps: ClassVar[Mapping[str, Gap]] = GAPS
    limits: ClassVar[Mapping[str, str]] = LIMITS
    snippets: ClassVar[Mapping[str, str]] = SNIPPETS


exclude_from_compilers(paddle)  # again, in case Paddle was imported before devshim
if core.is_compiled_with_cuda():
    cuda_context.restore_after_calls(PaddleBackend)
