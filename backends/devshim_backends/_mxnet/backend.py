"""The MXNet backend: one class that combines the adapter's mixins."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from devshim_backends._mxnet.capabilities import GAPS, LIMITS
from devshim_backends._mxnet.collectives import MxnetCollectives
from devshim_backends._mxnet.dlpack import MxnetDlpack
from devshim_backends._mxnet.gradients import MxnetGradients
from devshim_backends._mxnet.models.blocks import MxnetBlocks
from devshim_backends._mxnet.models.extra_state import MxnetExtraState
from devshim_backends._mxnet.models.models import MxnetModels
from devshim_backends._mxnet.namespace import MxnetNamespace
from devshim_backends._mxnet.random import MxnetRandom
from devshim_backends._mxnet.runtime import MxnetRuntime
from devshim_backends._mxnet.scopes import MxnetScopes
from devshim_backends._mxnet.simulation.simulate import MxnetSimulation
from devshim_backends._mxnet.snippets import SNIPPETS
from devshim_backends._mxnet.transfers.implicit import MxnetTransferHooks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devshim.contract.backend import Gap


class MxnetBackend(
    MxnetTransferHooks,
    MxnetModels,
    MxnetExtraState,
    MxnetBlocks,
    MxnetGradients,
    MxnetCollectives,
    MxnetRandom,  # brings MxnetCreation, MxnetTensors and MxnetDevices, each of which builds on the next
    MxnetScopes,
    MxnetRuntime,
    MxnetSimulation,
    MxnetNamespace,
    MxnetDlpack,
):
    """MXNet 1.9.1 and 2.0.0b1: NVIDIA cards as ``gpu``, and ``cpu(1)``, ``cpu(2)``, ... as simulated GPUs."""

    name: ClassVar[str] = "mxnet"
    title: ClassVar[str] = "MXNet"
    gaps: ClassVar[Mapping[str, Gap]] = GAPS
    limits: ClassVar[Mapping[str, str]] = LIMITS
    snippets: ClassVar[Mapping[str, str]] = SNIPPETS
