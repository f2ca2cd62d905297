"""Semi-structured sparse matrices: at most two of four neighbours in a row are not zero.

CUDA has two libraries for them. CUTLASS stores the values and a matrix of positions, in a format that PyTorch also
writes in Python. The format of cuSPARSELt is not public: here it has one row for each row of the matrix, with the
values first and then the position of each value, four in a byte. For 8 and 16 bits it has the same size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.sparse import _semi_structured_conversions as cutlass

from devshim_backends._torch.simulation.internals.relabel import to_host
from devshim_backends._torch.simulation.memory import adopt

aten = torch.ops.aten
_CPU = torch.device("cpu")


def compress(x: Any) -> Any:
    """Implement ``aten::_cslt_compress``."""
    rows, columns = x.shape
    groups = to_host(x).reshape(rows, columns // 4, 4)
    is_kept = groups != 0
    if bool((is_kept.sum(-1) > 2).any()):
        msg = "_cslt_compress: more than 2 of 4 neighbours in a row are not zero, where cuSPARSELt drops values"
        raise RuntimeError(msg)
    positions = torch.topk(is_kept.to(torch.int8), 2).indices.sort(-1).values
    values = groups.gather(-1, positions).reshape(rows, columns // 2)
    shifts = torch.tensor([0, 2, 4, 6], device=_CPU)
    packed = (positions.reshape(rows, columns // 8, 4) << shifts).sum(-1).to(torch.uint8)
    compressed = torch.cat([values.contiguous().view(torch.uint8), packed], -1).view(x.dtype)
    return adopt(compressed, x.get_device())


def _expand(compressed: Any, columns: int) -> Any:
    """Return the matrix that `compress` has packed."""
    rows, raw = compressed.shape[0], to_host(compressed).contiguous().view(torch.uint8)
    packed = raw[:, -(columns // 8) :].to(torch.int64)
    values = raw[:, : -(columns // 8)].contiguous().view(compressed.dtype).reshape(rows, columns // 4, 2)
    positions = (packed.unsqueeze(-1) >> torch.tensor([0, 2, 4, 6], device=_CPU)) & 3
    groups = torch.zeros(rows, columns // 4, 4, dtype=compressed.dtype, device=_CPU)
    groups.scatter_(-1, positions.reshape(rows, columns // 4, 2), values)
    return adopt(groups.reshape(rows, columns), compressed.get_device())


def multiply_compressed(
    compressed: Any,
    dense: Any,
    bias: Any = None,
    alpha: Any = None,
    out_dtype: torch.dtype | None = None,
    transpose_result: bool = False,
    *choices: int,
    **named_choices: int,
) -> Any:
    """Implement ``aten::_cslt_sparse_mm``."""
    result = _multiply(_expand(compressed, dense.shape[0]), dense)
    if alpha is not None:
        result = result * alpha.to(result.dtype).reshape(-1, *[1] * (alpha.dim() > 0))
    if bias is not None:
        result = result + bias.to(result.dtype)[:, None]
    result = _round(result, out_dtype or dense.dtype)
    return result.t().contiguous() if transpose_result else result


def to_cutlass(dense: Any) -> Any:
    """Implement ``aten::_to_sparse_semi_structured``: the values, and the matrix of their positions."""
    return cutlass.sparse_semi_structured_from_dense_cutlass(dense)


def multiply(values: Any, positions: Any, dense: Any, *, out_dtype: torch.dtype | None = None) -> Any:
    """Implement ``aten::_sparse_semi_structured_mm``."""
    matrix = cutlass.sparse_semi_structured_to_dense_cutlass(values, positions)
    return _round(_multiply(matrix, dense), out_dtype or dense.dtype)


def multiply_add(
    term: Any,
    values: Any,
    positions: Any,
    dense: Any,
    *,
    alpha: Any = 1,
    beta: Any = 1,
    out_dtype: torch.dtype | None = None,
) -> Any:
    """Implement ``aten::_sparse_semi_structured_addmm``; the term has a number for each row."""
    matrix = cutlass.sparse_semi_structured_to_dense_cutlass(values, positions)
    product = alpha * _multiply(matrix, dense)
    return _round(product + beta * term.to(product.dtype)[:, None], out_dtype or dense.dtype)


def apply_linear(
    x: Any,
    values: Any,
    positions: Any,
    *,
    bias: Any = None,
    activation: str | None = None,
    out_dtype: torch.dtype | None = None,
) -> Any:
    """Implement ``aten::_sparse_semi_structured_linear``."""
    matrix = cutlass.sparse_semi_structured_to_dense_cutlass(values, positions)
    result = _multiply(x.reshape(-1, x.shape[-1]), matrix.t())
    if bias is not None:
        result = result + bias.to(result.dtype)
    functions = {"relu": torch.relu, "silu": torch.nn.functional.silu}
    if activation in functions:
        result = functions[activation](result)
    return _round(result, out_dtype or x.dtype).reshape(*x.shape[:-1], -1)


def _multiply(left: Any, right: Any) -> Any:
    """Return a product in the type in which CUDA adds: float32, or for whole numbers their sum in int32."""
    if left.dtype is torch.int8:  # a sum of up to 2**38 such products is exact in float64
        return aten.mm.default(left.double(), right.double())
    return aten.mm.default(left.float(), right.float())


def _round(result: Any, dtype: torch.dtype) -> Any:
    if dtype is torch.int8:
        result = result.round().clamp(-128, 127)
    return result.to(dtype)


SEMI_STRUCTURED_KERNELS: Mapping[str, Callable[..., Any]] = {
    "_cslt_compress": compress,
    "_cslt_sparse_mm": multiply_compressed,
    "_cslt_sparse_mm_search": lambda *args, **kwargs: 0,  # the fastest algorithm: there is one
    "_to_sparse_semi_structured": to_cutlass,
    "_sparse_semi_structured_mm": multiply,
    "_sparse_semi_structured_addmm": multiply_add,
    "_sparse_semi_structured_linear": apply_linear,
}
"""Operator -> its kernel at PrivateUse1."""
