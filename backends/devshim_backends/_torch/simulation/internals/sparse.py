"""Sparse tensors on simulated GPUs: combinations of dense tensors that are moved one by one.

A capsule can hold only dense tensors, so a sparse tensor is taken apart, its parts are relabelled, and a new one is
made from them. Operators run as for dense tensors (`hooks`). An operator that writes into a sparse tensor writes into
the host's tensor, whose parts are then given to the GPU's tensor; if that is impossible, it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from devshim_backends._torch.simulation.internals.state import CURRENT, current, require_simulated

aten = torch.ops.aten
_Key = torch._C.DispatchKey
LAYOUTS = frozenset({torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc})
_ROWS = frozenset({torch.sparse_csr, torch.sparse_bsr})
_COO, _COMPRESSED = _Key.SparseCPU, _Key.SparseCsrCPU
_make_coo = aten._sparse_coo_tensor_with_dims_and_tensors.default._op_dk
_make_compressed = aten._sparse_compressed_tensor_unsafe.default

READERS = (
    *("_indices", "_values", "indices", "values", "_nnz", "is_coalesced", "sparse_dim", "dense_dim", "_dimI", "_dimV"),
    *("crow_indices", "col_indices", "ccol_indices", "row_indices", "_coalesced_"),
)
"""Operators that read the parts and properties of a sparse tensor, or mark it as coalesced (`_coalesced_`).

The CPU's kernels do so for a GPU's tensor, without relabelling.
"""


def assemble(parts: tuple[Any, ...], like: Any, device: Any) -> Any:
    """Return a sparse tensor with these parts, on their device, with the other properties of ``like``."""
    if like.layout is not torch.sparse_coo:
        values = parts[-1]
        return _make_compressed(*parts, like.shape, dtype=values.dtype, layout=like.layout, device=device)
    indices, values = parts
    dims = _read_part("sparse_dim", like), _read_part("dense_dim", like)
    options = {"dtype": values.dtype, "device": device, "is_coalesced": _read_part("is_coalesced", like)}
    return make_coo(*dims, like.shape, indices, values, **options)


def make_coo(sparse: int, dense: int, size: Any, indices: Any, values: Any, **options: Any) -> Any:
    """Implement ``aten::_sparse_coo_tensor_with_dims_and_tensors``: C++ creates the tensor on the current GPU."""
    options["layout"] = torch.sparse_coo
    with _use_gpu(values.get_device()):
        return _make_coo(_COO, sparse, dense, size, indices, values, **options)


@contextmanager
def _use_gpu(gpu: int) -> Iterator[None]:
    """Make a GPU current, or GPU 0 for -1, the index of the host."""
    before = current()
    CURRENT.index = max(gpu, 0)
    try:
        yield
    finally:
        CURRENT.index = before


def parts_of(tensor: Any) -> tuple[Any, ...]:
    """Return the dense tensors that make up a sparse one."""
    if tensor.layout is torch.sparse_coo:
        return _read_part("_indices", tensor), _read_part("_values", tensor)
    rows = tensor.layout in _ROWS
    compressed = _read_part("crow_indices" if rows else "ccol_indices", tensor)
    return compressed, _read_part("col_indices" if rows else "row_indices", tensor), _read_part("values", tensor)


def move_parts(tensor: Any, device: Any, move: Callable[[Any], Any]) -> Any:
    """Return a copy of a sparse tensor on a device, with each part moved by ``move``."""
    return assemble(tuple(move(part) for part in parts_of(tensor)), tensor, device)


def _read_part(name: str, tensor: Any, *args: Any) -> Any:
    """Call an operator of `READERS` by the CPU's kernel."""
    key = _COO if tensor.layout is torch.sparse_coo else _COMPRESSED
    return getattr(aten, name).default._op_dk(key, tensor, *args)


def reader_kernels() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the name and kernel of each operator of `READERS` that this PyTorch has."""
    for name in READERS:
        if torch._C._dispatch_has_kernel(f"aten::{name}"):
            yield name, _make_reader(name)


def _make_reader(name: str) -> Callable[..., Any]:
    def kernel(tensor: Any, *args: Any) -> Any:
        require_simulated(tensor.get_device())
        return _read_part(name, tensor, *args)

    return kernel


def replace_parts(target: Any, source: Any) -> Any:
    """Copy the parts of one sparse tensor into another on the same GPU."""
    if target.layout is not torch.sparse_coo:
        refuse_writing(target)
    with _use_gpu(target.get_device()):
        return aten.copy_sparse_to_sparse_.default._op_dk(_COO, target, source)


def refuse_writing(target: Any) -> None:
    """Raise if the target of an operator is a GPU's sparse tensor, whose parts the operator cannot replace."""
    if isinstance(target, torch.Tensor) and target.layout in LAYOUTS:
        msg = (
            f"this operator cannot write to a tensor of layout {target.layout} on a simulated GPU\n\n"
            "Hint: use the operator that returns a new tensor, or compute with x.to_dense()"
        )
        raise NotImplementedError(msg)
