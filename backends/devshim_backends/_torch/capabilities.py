"""The gaps and limits of PyTorch and of this adapter, with reasons.

Imports no framework, because the support table is generated from this module.
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
            "never", "PyTorch's operators compute where their arguments are, so a scope moves creation alone"
        ),
    }
)

LIMITS: Mapping[str, str] = MappingProxyType(
    {
        "simulate": (
            "PyTorch's C++ asks a device guard in Python for a stream where no error may leave (noexcept; 2.13), so "
            "Ctrl-C at that moment of an operator that autograd records ends the process; backward passes are not "
            "interrupted before their end"
        ),
        "models": (
            "every class of torch.optim is moved; tensors in a module's lists, dicts and plain attributes stay, "
            "as in PyTorch, to which they are no part of it; generators, frozen TorchScript, DTensor and "
            "quantized parameters are refused"
        ),
        "guard": (
            "what Python and NumPy read, host operands, and operators that wait for the card inside, such as nonzero"
            " (CUDA's sync debug mode, and simulated cards); not torch.distributed's and torch.sparse's,"
            " nor what its own threads do"
        ),
    }
)
