"""The PyTorch backend class, assembled from its mixins."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from devshim.registry import import_hooks
from devshim_backends._torch import tracing
from devshim_backends._torch.capabilities import GAPS, LIMITS
from devshim_backends._torch.collectives import TorchCollectives
from devshim_backends._torch.containers import TorchContainers
from devshim_backends._torch.creation import TorchCreation
from devshim_backends._torch.devices import TorchDevices
from devshim_backends._torch.dlpack import TorchDlpack
from devshim_backends._torch.gradients import TorchGradients
from devshim_backends._torch.models.blocks import TorchBlocks
from devshim_backends._torch.models.extra_state import TorchExtraState
from devshim_backends._torch.models.keras import dispatch as keras_dispatch
from devshim_backends._torch.models.models import TorchModels
from devshim_backends._torch.namespace import TorchNamespace
from devshim_backends._torch.random import TorchRandom
from devshim_backends._torch.ranks import TorchRanks
from devshim_backends._torch.runtime import TorchRuntime
from devshim_backends._torch.scopes import TorchScopes
from devshim_backends._torch.simulation.simulate import TorchSimulation
from devshim_backends._torch.snippets import SNIPPETS
from devshim_backends._torch.transfers.implicit import TorchTransferHooks
from devshim_backends._torch.transfers.internals.ahead import TorchAhead

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devshim.contract.backend import Gap


class TorchBackend(
    TorchTransferHooks,
    TorchAhead,
    TorchDevices,
    TorchCreation,
    TorchRandom,
    TorchScopes,
    TorchRuntime,
    TorchSimulation,
    TorchModels,
    TorchExtraState,
    TorchBlocks,
    TorchGradients,
    TorchCollectives,
    TorchRanks,
    TorchContainers,
    TorchNamespace,
    TorchDlpack,  # inherits TorchTensors
):
    """PyTorch 2.10 and newer: CUDA and ROCm cards are ``gpu``; ``mps``, ``xpu`` and plug-ins have their own names."""

    name: ClassVar[str] = "torch"
    title: ClassVar[str] = "PyTorch"
    gaps: ClassVar[Mapping[str, Gap]] = GAPS
    limits: ClassVar[Mapping[str, str]] = LIMITS
    snippets: ClassVar[Mapping[str, str]] = SNIPPETS

    def __init__(self) -> None:
        tracing.note_adapter(self)
        import_hooks.call_after_import("keras", lambda: keras_dispatch.install(self))
