"""The gaps of MXNet and of this adapter, with reasons.

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
        "complex": Gap("upstream", "MXNet has no complex dtype"),
        "op_scope": Gap(
            "never", "MXNet's operators compute where their arguments are, so a scope moves creation alone"
        ),
        "refuse_mixing": Gap(
            "upstream",
            "its imperative operators compare the kind of device alone (GetContext in imperative_utils.h), so real "
            "gpu(0) and gpu(1) mix silently; simulated ones are refused by devshim, and so is cpu with gpu by MXNet",
        ),
        "trace_place": Gap(
            "upstream",
            "a hybridized block is compiled for the device of its inputs: inside it only a move to that one works",
        ),
        "trace_on": Gap(
            "upstream",
            "a hybridized block is compiled for the device of its inputs: inside it only that one can be the default",
        ),
    }
)

LIMITS: Mapping[str, str] = MappingProxyType(
    {
        "models": (
            "every optimizer MXNet registers is moved; SGLD draws its noise from the generator of the device it "
            "is on, DCASGD with momentum fails in 1.9.1 by itself; parameters on several devices at once and "
            "trainers that update on a kvstore are refused"
        ),
        "guard": (
            "what arrays' own methods read, asnumpy, asscalar and masks, and operands of other devices; not what "
            "functions such as mx.np.unique and mx.np.add read or carry inside, on real cards"
        ),
    }
)
