"""The CuPy adapter's class, which combines the mixins of the other modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from devshim_backends._cupy.capabilities import GAPS, LIMITS
from devshim_backends._cupy.collectives import CupyCollectives
from devshim_backends._cupy.dlpack import CupyDlpack
from devshim_backends._cupy.namespace import CupyNamespace
from devshim_backends._cupy.random import CupyRandom
from devshim_backends._cupy.simulation.simulate import CupySimulation
from devshim_backends._cupy.snippets import SNIPPETS
from devshim_backends._cupy.transfers.implicit import CupyTransferHooks

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
    CupyRandom,
    CupyScopes,
    CupyRuntime,
    CupySimulation,
    CupyTransferHooks,
    CupyDlpack,
    CupyCollectives,
    CupyNamespace,
):
    """The adapter for CuPy 14 and newer: CuPy's arrays on CUDA and ROCm GPUs, NumPy's arrays in host memory."""

    name: ClassVar[str] = "cupy"
    title: ClassVar[str] = "CuPy"
    gaps: ClassVar[Mapping[str, Gap]] = GAPS
    limits: ClassVar[Mapping[str, str]] = LIMITS
    snippets: ClassVar[Mapping[str, str]] = SNIPPETS
    host_tensors: ClassVar[str] = "numpy"
