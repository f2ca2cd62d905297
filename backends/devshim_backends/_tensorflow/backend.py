"""The TensorFlow backend: its rooms put together."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from devshim_backends._tensorflow.containers import TensorflowContainers
from devshim_backends._tensorflow.creation import TensorflowCreation
from devshim_backends._tensorflow.draws import TensorflowDraws
from devshim_backends._tensorflow.gaps import GAPS, LIMITS
from devshim_backends._tensorflow.hidden import TensorflowHidden
from devshim_backends._tensorflow.interop import TensorflowInterop
from devshim_backends._tensorflow.layers import TensorflowLayers
from devshim_backends._tensorflow.lines import LINES
from devshim_backends._tensorflow.models import TensorflowModels
from devshim_backends._tensorflow.resuming import TensorflowResuming
from devshim_backends._tensorflow.several import TensorflowSeveral
from devshim_backends._tensorflow.simulation import TensorflowSimulation
from devshim_backends._tensorflow.taken import TensorflowTaken

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devshim.contract.backend import Gap


class TensorflowBackend(
    TensorflowHidden,
    TensorflowTaken,
    TensorflowModels,
    TensorflowResuming,
    TensorflowLayers,
    TensorflowSeveral,
    TensorflowCreation,  # with it TensorflowTensors, TensorflowDevices and TensorflowScopes, on which it builds
    TensorflowDraws,
    TensorflowSimulation,  # with it TensorflowRuntime
    TensorflowInterop,
    TensorflowContainers,
):
    """TensorFlow, 2.16 to 2.21, with Keras 3 on its TensorFlow backend."""

    name: ClassVar[str] = "tensorflow"
    title: ClassVar[str] = "TensorFlow"
    gaps: ClassVar[Mapping[str, Gap]] = GAPS
    limits: ClassVar[Mapping[str, str]] = LIMITS
    lines: ClassVar[Mapping[str, str]] = LINES
