"""Products of 8-bit matrices, for which CUDA's libraries need certain sizes and layouts: the CPU computes all of them.

The checks are those of CUDA, in its words. A real GPU multiplies matrices of float8 from compute capability 8.9 on.
Simulated GPUs have 8.0 and multiply them as well, so that a program for newer cards can be tested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from devshim_backends._torch.simulation.dtypes import scalar_type

__all__ = ["kernels"]

_LAYOUT = "Only multiplication of row-major and column-major matrices is supported by cuBLASLt"


def _require(holds: bool, message: str, error: type[Exception] = RuntimeError) -> None:
    if not holds:
        raise error(message)


def _check_integers(left: Any, right: Any, **out: Any) -> None:
    """Refuse what CUDA refuses for ``aten::_int_mm``."""
    for name, matrix in (("self", left), ("mat2", right)):
        _require(matrix.dim() == 2, f"Expected {name} to be of dimension 2 but got {matrix.dim()}")
    (rows, inner), (other, columns) = left.shape, right.shape
    _require(rows > 16, f"self.size(0) needs to be greater than 16, but got {rows}")
    multiple = "needs to be greater than 0 and a multiple of 8, but got"
    _require(inner > 0 and inner % 8 == 0, f"self.size(1) {multiple} {inner}")
    _require(inner == other, f"self.size(1) needs to match mat2.size(0) but got {inner} and {other}")
    _require(columns > 0 and columns % 8 == 0, f"mat2.size(1) {multiple} {columns}")
    for matrix in (right, left):
        _require(matrix.dtype is torch.int8, f"expected scalar type Char but found {scalar_type(matrix.dtype)}")


def _check_scaled(left: Any, right: Any, *scales: Any, **others: Any) -> None:
    """Refuse what CUDA refuses for ``aten::_scaled_mm``."""
    _check_float8(left, right, ("mat1", "mat2"), RuntimeError)


def _check_scaled_by_recipe(left: Any, right: Any, *recipes: Any, **others: Any) -> None:
    """Refuse what CUDA refuses for ``aten::_scaled_mm_v2``."""
    _check_float8(left, right, ("mat_a", "mat_b"), ValueError)


def _check_float8(left: Any, right: Any, names: tuple[str, str], error: type[Exception]) -> None:
    for name, matrix in zip(names, (left, right), strict=True):
        _require(matrix.dim() == 2, f"{name} must be a matrix", error)
    if not (left.numel() and right.numel()) or left.shape[1] != right.shape[0]:
        return  # the CPU computes the former and refuses the latter
    (rows, inner), (_, columns) = left.shape, right.shape
    trailing = f"Expected trailing dimension of mat1 to be divisible by 16 but got mat1 shape: ({rows}x{inner})."
    _require(inner % 16 == 0, trailing, error)
    _require(columns % 16 == 0, f"mat2 shape ({inner}x{columns}) must be divisible by 16", error)
    both = left.dtype is right.dtype is torch.float8_e5m2
    _require(not both, "Multiplication of two Float8_e5m2 matrices is not supported", ValueError)
    _require(_is_column_major(right) and not (rows > 1 and _is_column_major(left)), _LAYOUT)


def _is_column_major(matrix: Any) -> bool:
    return bool(matrix.stride(0) == 1 and matrix.stride(1) >= matrix.shape[0])


def _checked(check: Callable[..., None], compute: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        check(*args, **kwargs)
        return compute(*args, **kwargs)

    return kernel


def kernels(as_one_call: Callable[[str], Callable[..., Any]]) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the kernels of this PyTorch; the function returns the kernel that computes an operator on the CPU."""
    for name, check in _CHECKS.items():
        if torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "CPU"):
            yield name, _checked(check, as_one_call(name))


_CHECKS: Mapping[str, Callable[..., None]] = {
    **dict.fromkeys(("_int_mm", "_int_mm.out"), _check_integers),
    **dict.fromkeys(("_scaled_mm", "_scaled_mm.out"), _check_scaled),
    **dict.fromkeys(("_scaled_mm_v2", "_scaled_mm_v2.out"), _check_scaled_by_recipe),
}
"""Operator -> the check of its arguments."""
