"""Products of matrices with ``out_dtype=``, which PyTorch has for CUDA and not for the CPU.

CUDA multiplies float16 and bfloat16, and adds in float32. Here the factors are converted to float32, which is exact.
PyTorch defines no gradient for these operators, and autocast leaves their arguments as they are, as on CUDA.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from devshim_backends._torch.simulation.dtypes import scalar_type, write_out

aten = torch.ops.aten
_HALVES = (torch.float16, torch.bfloat16)


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise RuntimeError(message)


def _require_dtypes(factor: Any, dtype: torch.dtype, term: Any, out: Any, factor_name: str) -> None:
    """Refuse the dtypes that CUDA refuses, in its words."""
    is_wider = dtype is torch.float32 and factor.dtype in _HALVES
    same_out = "out_dtype must be the same as the dtype of the provided out tensor"
    _require(out is None or out.dtype is dtype, same_out)
    same_input = "out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs"
    _require(dtype is factor.dtype or is_wider, same_input)
    same_term = f"self dtype must match either out_dtype or {factor_name} dtype"
    _require(term is None or term.dtype in (dtype, factor.dtype), same_term)


def _require_matrices(left: Any, right: Any, left_name: str) -> None:
    for name, matrix in ((left_name, left), ("mat2", right)):
        _require(matrix.dim() == 2, f"{name} must be a matrix, got {matrix.dim()}-D tensor")
    (rows, inner), (other, columns) = left.shape, right.shape
    _require(inner == other, f"mat1 and mat2 shapes cannot be multiplied ({rows}x{inner} and {other}x{columns})")


def _require_batches(left: Any, right: Any, out: Any) -> None:
    for name, batch in (("batch1", left), ("batch2", right)):
        _require(batch.dim() == 3, f"{name} must be a 3D tensor")
    count, rows, inner = left.shape
    found = list(right.shape[:2])
    expected = "Expected size for first two dimensions of batch2 tensor to be"
    _require(found == [count, inner], f"{expected}: [{count}, {inner}] but got: [{found[0]}, {found[1]}].")
    _require(left.dtype is right.dtype, "batch1 and batch2 must have the same dtype")
    shape = (count, rows, right.shape[2])
    _require(out is None or out.shape == shape, "self must have the same shape as the output")


def mm(left: Any, right: Any, out_dtype: torch.dtype, *, out: Any = None) -> Any:
    """Implement ``aten::mm.dtype`` and ``aten::mm.dtype_out``."""
    _require_matrices(left, right, "self")
    _require(left.dtype is right.dtype, "input dtypes must be the same")
    _require_dtypes(left, out_dtype, None, out, "mat1")
    return _return("aten::mm", aten.mm.default(left.to(out_dtype), right.to(out_dtype)), out)


def addmm(
    term: Any, left: Any, right: Any, out_dtype: torch.dtype, *, beta: Any = 1, alpha: Any = 1, out: Any = None
) -> Any:
    """Implement ``aten::addmm.dtype`` and ``aten::addmm.dtype_out``."""
    _require_matrices(left, right, "mat1")
    same = f"mat1 and mat2 must have the same dtype, but got {scalar_type(left.dtype)} and {scalar_type(right.dtype)}"
    _require(left.dtype is right.dtype, same)
    _require_dtypes(left, out_dtype, term, out, "mat1")
    factors = left.to(out_dtype), right.to(out_dtype)
    return _return("aten::addmm", aten.addmm.default(term.to(out_dtype), *factors, beta=beta, alpha=alpha), out)


def bmm(left: Any, right: Any, out_dtype: torch.dtype, *, out: Any = None) -> Any:
    """Implement ``aten::bmm.dtype`` and ``aten::bmm.dtype_out``."""
    _require_batches(left, right, out)
    _require_dtypes(left, out_dtype, None, out, "batch1")
    return _return("aten::bmm", aten.bmm.default(left.to(out_dtype), right.to(out_dtype)), out)


def baddbmm(
    term: Any, left: Any, right: Any, out_dtype: torch.dtype, *, beta: Any = 1, alpha: Any = 1, out: Any = None
) -> Any:
    """Implement ``aten::baddbmm.dtype`` and ``aten::baddbmm.dtype_out``."""
    _require_batches(left, right, out)
    _require_dtypes(left, out_dtype, term, out, "batch1")
    factors = left.to(out_dtype), right.to(out_dtype)
    return _return("aten::baddbmm", aten.baddbmm.default(term.to(out_dtype), *factors, beta=beta, alpha=alpha), out)


def _return(name: str, result: Any, out: Any) -> Any:
    return result if out is None else write_out(name, out, result)


_FORMS: Mapping[str, Callable[..., Any]] = {"mm": mm, "addmm": addmm, "bmm": bmm, "baddbmm": baddbmm}

PRODUCT_KERNELS: Mapping[str, Callable[..., Any]] = {
    f"{name}.{form}": kernel for name, kernel in _FORMS.items() for form in ("dtype", "dtype_out")
}
"""Operator -> its kernel at PrivateUse1."""
