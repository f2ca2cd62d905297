"""The gaps of PaddlePaddle and of this adapter, with reasons.

The support table is generated from them, so this module imports no framework.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from devshim.contract.backend import Gap

if TYPE_CHECKING:
    from collections.abc import Mapping

GAPS: Mapping[str, Gap] = MappingProxyType(
    {
        "op_scope": Gap(
            "never", "PaddlePaddle's operators compute where their arguments are, so a scope moves creation alone"
        ),
        "refuse_mixing": Gap(
            "upstream",
            "PaddlePaddle (3.3 and older) checks no placement: on real cards mixed arguments give a result on one of "
            "them, or an illegal memory access (PaddlePaddle/Paddle#51706, #71667); simulated cards are refused by "
            "devshim",
        ),
    }
)

LIMITS: Mapping[str, str] = MappingProxyType(
    {
        "simulate": (
            "functions that a program took out of Paddle's modules before GPUs were simulated compute with tensors of "
            "two of them, and of those that were taken away"
        ),
        "several": (
            "in threads of your own paddle.grad, compiling, and one function compiled as a whole in two of them end "
            "the process or give wrong values (seen on 3.3.1): hold a lock; ds.parallel takes turns or refuses"
        ),
        "models": (
            "every class of paddle.optimizer is moved; LBFGS, use_multi_tensor and ClipGradByGlobalNorm are "
            "refused for a model over several devices, because they compute with all parameters at once"
        ),
        "guard": (
            "what tensors' own methods read, np.asarray, masks, and operands of other devices; not what functions "
            "such as paddle.unique and paddle.add read or carry inside, on real cards"
        ),
    }
)
