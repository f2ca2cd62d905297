"""The CuPy adapter's class, which combines the mixins of the modules beside this one."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from devshim_backends._cupy.capabilities import GAPS, LIMITS
from devshim_backends._cupy.collectives import CupySeveral
from devshim_backends._cupy.dlpack import CupyInterop
from devshim_backends._cupy.random import CupyDraws
from devshim_backends._cupy.simulation.simulate import CupySimulation
from devshim_backends._cupy.snippets import LINES
from devshim_backends._cupy.transfers.implicit import CupyHidden

from .creation import CupyCreation
from .devices import CupyDevices
from .runtime import CupyRuntime
from .scopes import CupyScopes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devshim.contract.backend import Gap


class CupyBackend(
    CupyDevices,
    CupyCreation,
    CupyDraws,
    CupyScopes,
    CupyRuntime,
    CupySimulation,
    CupyHidden,
    CupyInterop,
    CupySeveral,
):
    """The adapter for CuPy 14 and newer: CuPy's arrays on CUDA and ROCm GPUs, NumPy's arrays in host memory."""

    name: ClassVar[str] = "cupy"
    title: ClassVar[str] = "CuPy"
    gaps: ClassVar[Mapping[str, Gap]] = GAPS
    limits: ClassVar[Mapping[str, str]] = LIMITS
    lines: ClassVar[Mapping[str, str]] = LINES
    host_tensors: ClassVar[str] = "numpy"
