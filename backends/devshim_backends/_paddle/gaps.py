"""What PaddlePaddle, or this adapter, cannot do, and why. Imports no framework: the support table is made from it."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from devshim.backend import Gap

if TYPE_CHECKING:
    from collections.abc import Mapping

GAPS: Mapping[str, Gap] = MappingProxyType(
    {
        "op_scope": Gap(
            "never", "PaddlePaddle's operators compute where their arguments are, so a scope moves creation alone"
        ),
        "refuse_mixing": Gap(
            "upstream",
            "PaddlePaddle (3.3 and older) checks no placement: mixed arguments give a result on one of the devices, "
            "or an illegal memory access on real cards (PaddlePaddle/Paddle#51706, #71667)",
        ),
        "simulate": Gap(
            "planned", "a simulated card here is a custom device, announced before PaddlePaddle is imported"
        ),
        "simulate_memory": Gap("planned", "it comes with the simulated cards"),
        "several": Gap("planned", "splitting, joining and reducing over several devices comes with the models"),
        "models": Gap("planned", "models and optimizers are moved whole from the next release on"),
    }
)
