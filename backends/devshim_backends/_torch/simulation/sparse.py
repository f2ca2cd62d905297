"""Sparse tensors on simulated GPUs: combinations of dense tensors that are moved one by one.

A capsule can hold only dense tensors, so a sparse tensor is taken apart, its parts are relabelled, and a new one is
made of them. Operators run as for dense tensors (`dispatch`). An operator that writes into a sparse tensor writes into
the host's tensor, whose parts are then given to the GPU's tensor; where that is impossible, it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from devshim_backends._torch.simulation.state import CURRENT, SHOWN, missing

aten = torch.ops.aten
_Key = torch._C.DispatchKey
LAYOUTS = frozenset({torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc})
_ROWS = frozenset({torch.sparse_csr, torch.sparse_bsr})
_COO, _COMPRESSED = _Key.SparseCPU, _Key.SparseCsrCPU
_make_coo = aten._sparse_coo_tensor_with_dims_and_tensors.default._op_dk
_make_compressed = aten._sparse_compressed_tensor_unsafe.default

LOOKS = (
    *("_indices", "_values", "indices", "values", "_nnz", "is_coalesced", "sparse_dim", "dense_dim", "_dimI", "_dimV"),
    *("crow_indices", "col_indices", "ccol_indices", "row_indices", "_coalesced_"),
)
"""Operators that only read a sparse tensor's parts: the CPU's kernels do so for a GPU's tensor, without relabelling."""


def together(parts: tuple[Any, ...], like: Any, device: Any) -> Any:
    """Return a sparse tensor of these parts, on their device, with the other properties of ``like``."""
    if like.layout is not torch.sparse_coo:
        compressed, plain, values = parts
        return _make_compressed(
            compressed, plain, values, like.shape, dtype=values.dtype, layout=like.layout, device=device
        )
    indices, values = parts
    dims = _look("sparse_dim", like), _look("dense_dim", like)
    return make_coo(
        *dims, like.shape, indices, values, dtype=values.dtype, device=device, is_coalesced=_look("is_coalesced", like)
    )


def make_coo(sparse: int, dense: int, size: Any, indices: Any, values: Any, **options: Any) -> Any:
    """Implement ``aten::_sparse_coo_tensor_with_dims_and_tensors``: C++ creates the tensor on the current GPU."""
    options["layout"] = torch.sparse_coo
    with _current(values.get_device()):
        return _make_coo(_COO, sparse, dense, size, indices, values, **options)


@contextmanager
def _current(card: int) -> Iterator[None]:
    before = CURRENT.index
    CURRENT.index = max(card, 0)
    try:
        yield
    finally:
        CURRENT.index = before


def parts_of(tensor: Any) -> tuple[Any, ...]:
    """Return the dense tensors that make up a sparse one."""
    if tensor.layout is torch.sparse_coo:
        return _look("_indices", tensor), _look("_values", tensor)
    rows = tensor.layout in _ROWS
    compressed = _look("crow_indices" if rows else "ccol_indices", tensor)
    return compressed, _look("col_indices" if rows else "row_indices", tensor), _look("values", tensor)


def moved(tensor: Any, device: Any, move: Callable[[Any], Any]) -> Any:
    """Return a sparse tensor of another's parts, each moved."""
    return together(tuple(move(part) for part in parts_of(tensor)), tensor, device)


def _look(name: str, tensor: Any) -> Any:
    op = getattr(aten, name).default
    return op._op_dk(_COO if tensor.layout is torch.sparse_coo else _COMPRESSED, tensor)


def looks() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the name and kernel of each operator of `LOOKS` that this PyTorch has."""
    for name in LOOKS:
        if torch._C._dispatch_has_kernel(f"aten::{name}"):
            yield name, _looking(name)


def _looking(name: str) -> Callable[..., Any]:
    op = getattr(aten, name).default

    def kernel(tensor: Any, *args: Any) -> Any:
        card = tensor.get_device()
        if card >= SHOWN.count:
            raise missing(card)
        return op._op_dk(_COO if tensor.layout is torch.sparse_coo else _COMPRESSED, tensor, *args)

    return kernel


def give_parts(target: Any, source: Any) -> Any:
    """Copy the parts of one sparse tensor into another on the same GPU."""
    if target.layout is not torch.sparse_coo:
        refuse_writing(target)
    with _current(target.get_device()):
        return aten.copy_sparse_to_sparse_.default._op_dk(_COO, target, source)


def refuse_writing(target: Any) -> None:
    """Refuse to write into a GPU's sparse tensor if its parts cannot be replaced."""
    if isinstance(target, torch.Tensor) and target.layout in LAYOUTS:
        raise NotImplementedError(
            f"a tensor of {target.layout} on a simulated GPU cannot be written to in this way\n\n"
            "Hint: use the operator that returns a new one, or compute with x.to_dense()"
        )
