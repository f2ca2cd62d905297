"""Factors of matrices, ``A = L @ U``, without exchanging rows (``pivot=False``): only CUDA computes them.

A zero on the diagonal divides the numbers below it by zero, and ``info`` has the position of the first one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from devshim_backends._torch.simulation.hooks import without_modes
from devshim_backends._torch.simulation.internals.relabel import to_host
from devshim_backends._torch.simulation.internals.state import require_simulated
from devshim_backends._torch.simulation.memory import adopt

__all__ = ["kernels"]

aten = torch.ops.aten
_DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)


def _factor(x: Any, check_errors: bool = False) -> tuple[Any, Any, Any]:
    """Return both factors in one matrix, the row exchanged with each row, which is that row itself, and the errors."""
    both = x.mT.clone(memory_format=torch.contiguous_format).mT  # each column in one piece, as cuSOLVER has them
    count = min(both.shape[-2:])
    for i in range(count):
        below = both[..., i + 1 :, i : i + 1]
        below /= both[..., i : i + 1, i : i + 1]
        both[..., i + 1 :, i + 1 :] -= below * both[..., i : i + 1, i + 1 :]
    pivots = torch.empty((*both.shape[:-2], count), dtype=torch.int32, device="cpu")
    pivots.copy_(torch.arange(1, count + 1, device="cpu"))
    is_zero = both.diagonal(dim1=-2, dim2=-1) == 0
    first = torch.where(is_zero, pivots, count + 1).amin(-1) if count else torch.ones(both.shape[:-2], device="cpu")
    info = torch.where(first > count, 0, first).to(torch.int32)
    if check_errors:
        aten._linalg_check_errors(info, "torch.linalg.lu_factor_ex", is_matrix=both.dim() == 2)
    return both, pivots, info


def _split(x: Any) -> tuple[Any, Any, Any]:
    """Return no permutation, and both factors as matrices of their own."""
    both, count = _factor(x)[0], min(x.shape[-2:])
    lower = both[..., :count].tril(-1)
    lower.diagonal(dim1=-2, dim2=-1).fill_(1)
    return x.new_empty(0), lower.contiguous(), both[..., :count, :].triu().contiguous()


def _kernel(compute: Callable[..., Any], without_pivots: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel that has its own formula without pivots.

    Args:
        compute: Computes the operator on the CPU.
        without_pivots: The formula.
    """
    formula = without_modes(without_pivots)

    def kernel(x: Any, *, pivot: bool = True, check_errors: bool = False, **out: Any) -> Any:
        options = {"check_errors": True} if check_errors else {}
        if pivot or x.dtype not in _DTYPES or x.dim() < 2:
            return compute(x, **options, **out)  # refuses the dtype or the shape
        gpu = require_simulated(x.get_device())
        results = [adopt(each, gpu) for each in formula(to_host(x), **options)]
        if not out:
            return tuple(results)
        compute(x, **out)  # checks the results of the program, and gives them their shapes
        for target, result in zip(out.values(), results, strict=True):
            target.resize_(result.shape).copy_(result)
        return tuple(out.values())

    return kernel


def kernels(as_one_call: Callable[[str], Callable[..., Any]]) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the kernels; the function returns the kernel that computes an operator on the CPU."""
    for name, without_pivots in _FORMULAS.items():
        for form in (name, f"{name}.out"):
            yield form, _kernel(as_one_call(form), without_pivots)


_FORMULAS: Mapping[str, Callable[..., Any]] = {"linalg_lu_factor_ex": _factor, "linalg_lu": _split}
