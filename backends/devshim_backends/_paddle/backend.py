"""The PaddlePaddle backend: its rooms put together."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import paddle

from devshim_backends._paddle import current
from devshim_backends._paddle.creation import PaddleCreation
from devshim_backends._paddle.devices import PaddleDevices, core
from devshim_backends._paddle.draws import PaddleDraws
from devshim_backends._paddle.gaps import GAPS, LIMITS
from devshim_backends._paddle.hidden import PaddleHidden
from devshim_backends._paddle.importing import keep_compilers_out
from devshim_backends._paddle.interop import PaddleInterop
from devshim_backends._paddle.layers import PaddleLayers
from devshim_backends._paddle.lines import LINES
from devshim_backends._paddle.models import PaddleModels
from devshim_backends._paddle.resuming import PaddleResuming
from devshim_backends._paddle.runtime import PaddleRuntime
from devshim_backends._paddle.scopes import PaddleScopes
from devshim_backends._paddle.several import PaddleSeveral
from devshim_backends._paddle.simulation import PaddleSimulation
from devshim_backends._paddle.taken import PaddleTaken

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devshim.contract.backend import Gap


class PaddleBackend(
    PaddleHidden,
    PaddleTaken,
    PaddleDevices,
    PaddleCreation,
    PaddleDraws,
    PaddleScopes,
    PaddleRuntime,
    PaddleSimulation,
    PaddleModels,
    PaddleResuming,
    PaddleLayers,
    PaddleSeveral,
    PaddleInterop,  # with it PaddleTensors, on which it builds
):
    """PaddlePaddle, 2.6 and newer: CUDA and ROCm cards as ``gpu``, XPUs, and plug-ins by the names of their kinds."""

    name: ClassVar[str] = "paddle"
    title: ClassVar[str] = "PaddlePaddle"
    gaps: ClassVar[Mapping[str, Gap]] = GAPS
    limits: ClassVar[Mapping[str, str]] = LIMITS
    lines: ClassVar[Mapping[str, str]] = LINES


keep_compilers_out(paddle)  # again, for a Paddle that was imported before devshim was asked for it
if core.is_compiled_with_cuda():
    current.keep(PaddleBackend)
