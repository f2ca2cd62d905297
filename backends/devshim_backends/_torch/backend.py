"""The PyTorch backend: its rooms put together."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from devshim.registry import import_hooks
from devshim_backends._torch import keras_wiring
from devshim_backends._torch.containers import TorchContainers
from devshim_backends._torch.creation import TorchCreation
from devshim_backends._torch.devices import TorchDevices
from devshim_backends._torch.draws import TorchDraws
from devshim_backends._torch.gaps import GAPS, LIMITS
from devshim_backends._torch.hidden import TorchHidden
from devshim_backends._torch.interop import TorchInterop
from devshim_backends._torch.layers import TorchLayers
from devshim_backends._torch.lines import LINES
from devshim_backends._torch.models import TorchModels
from devshim_backends._torch.resuming import TorchResuming
from devshim_backends._torch.runtime import TorchRuntime
from devshim_backends._torch.scopes import TorchScopes
from devshim_backends._torch.several import TorchSeveral
from devshim_backends._torch.simulation import TorchSimulation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devshim.contract.backend import Gap


class TorchBackend(
    TorchHidden,
    TorchDevices,
    TorchCreation,
    TorchDraws,
    TorchScopes,
    TorchRuntime,
    TorchSimulation,
    TorchModels,
    TorchResuming,
    TorchLayers,
    TorchSeveral,
    TorchContainers,
    TorchInterop,  # with it TorchTensors, on which it builds
):
    """PyTorch, 2.10 and newer: CUDA and ROCm cards as ``gpu``, and ``mps``, ``xpu`` and plug-ins by their names."""

    name: ClassVar[str] = "torch"
    title: ClassVar[str] = "PyTorch"
    gaps: ClassVar[Mapping[str, Gap]] = GAPS
    limits: ClassVar[Mapping[str, str]] = LIMITS
    lines: ClassVar[Mapping[str, str]] = LINES

    def __init__(self) -> None:
        import_hooks.behind("keras", lambda: keras_wiring.watch(self))
