"""The TensorFlow adapter's class, which combines the mixins of the other modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from devshim_backends._tensorflow.capabilities import GAPS, LIMITS
from devshim_backends._tensorflow.containers import TensorflowContainers
from devshim_backends._tensorflow.creation import TensorflowCreation
from devshim_backends._tensorflow.dlpack import TensorflowDlpack
from devshim_backends._tensorflow.gradients import TensorflowGradients
from devshim_backends._tensorflow.models.blocks import TensorflowBlocks
from devshim_backends._tensorflow.models.extra_state import TensorflowExtraState
from devshim_backends._tensorflow.namespace import TensorflowNamespace
from devshim_backends._tensorflow.random import TensorflowRandom
from devshim_backends._tensorflow.ranks import TensorflowRanks
from devshim_backends._tensorflow.simulation.removed_gpus import TensorflowRemovedGpus
from devshim_backends._tensorflow.simulation.simulate import TensorflowSimulation
from devshim_backends._tensorflow.snippets import SNIPPETS
from devshim_backends._tensorflow.transfers.implicit import TensorflowTransferHooks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devshim.contract.backend import Gap


class TensorflowBackend(
    TensorflowTransferHooks,
    TensorflowRemovedGpus,
    TensorflowGradients,  # includes TensorflowModels
    TensorflowExtraState,
    TensorflowBlocks,
    TensorflowNamespace,  # includes TensorflowCollectives
    TensorflowCreation,  # includes TensorflowTensors, TensorflowDevices and TensorflowScopes, on which it builds
    TensorflowRandom,
    TensorflowSimulation,  # includes TensorflowRuntime
    TensorflowDlpack,
    TensorflowContainers,
    TensorflowRanks,
):
    """The adapter for TensorFlow 2.16 to 2.21 and Keras 3 with its TensorFlow backend."""

    name: ClassVar[str] = "tensorflow"
    title: ClassVar[str] = "TensorFlow"
    tracers_have_no_device: ClassVar[bool] = True
    gaps: ClassVar[Mapping[str, Gap]] = GAPS
    limits: ClassVar[Mapping[str, str]] = LIMITS
    snippets: ClassVar[Mapping[str, str]] = SNIPPETS
