"""The CuPy adapter: a class made of its mixins."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from .creation import CupyCreation
from .devices import CupyDevices
from .draws import CupyDraws
from .gaps import GAPS, LIMITS
from .hidden import CupyHidden
from .interop import CupyInterop
from .lines import LINES
from .runtime import CupyRuntime
from .scopes import CupyScopes
from .several import CupySeveral
from .simulation import CupySimulation

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
    """CuPy, 14 and newer: its arrays on CUDA and ROCm cards, and NumPy's arrays in host memory."""

    name: ClassVar[str] = "cupy"
    title: ClassVar[str] = "CuPy"
    gaps: ClassVar[Mapping[str, Gap]] = GAPS
    limits: ClassVar[Mapping[str, str]] = LIMITS
    lines: ClassVar[Mapping[str, str]] = LINES
    host_tensors: ClassVar[str] = "numpy"
