"""Operators that PyTorch or the program has for the CPU, and not for CUDA: they are refused with CUDA's error.

Source for PyTorch's own: the dispatch tables of ``native_functions.yaml`` in PyTorch 2.13, which the wheel contains
(package ``torchgen``). Operators for the compiler and for internal tests are left out, and so is `torch.narrow_copy`
into ``out=``, which CUDA lacks only in that form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

DENSE = (
    *("histogram.bin_ct", "histogram.bin_ct_out", "histogram.bins_tensor", "histogram.bins_tensor_out"),
    *("_histogramdd_bin_edges", "_histogramdd_from_bin_cts", "_histogramdd_from_bin_tensors"),
    *("_spdiags", "slow_conv3d_forward", "slow_conv3d_forward.output", "to_mkldnn"),
    *("_add_relu.Scalar", "_add_relu.Tensor", "_add_relu.out", "_add_relu_.Scalar", "_add_relu_.Tensor"),
    *("mkldnn_rnn_layer", "mkldnn_rnn_layer_backward", "_weight_int4pack_mm_for_cpu"),
    "quantize_per_tensor.tensors",
    *("_upsample_lanczos2d_aa", "_upsample_lanczos2d_aa.out"),
    *("_upsample_lanczos2d_aa_backward", "_upsample_lanczos2d_aa_backward.grad_input"),
)
"""Operators on dense tensors."""
SPARSE_CSR = ("_sparse_mm_reduce_impl", "_sparse_mm_reduce_impl_backward")
"""Operators on tensors with compressed rows, among them ``torch.sparse.mm`` with ``reduce=``."""


def iter_refusing_kernels(names: tuple[str, ...], form: str = "") -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield a kernel that refuses, for each of the operators that this PyTorch has."""
    for name in names:
        if torch._C._dispatch_has_kernel(f"aten::{name}"):
            yield name, _refuse(name, form)


def require_cuda_kernel(op: Any, form: str = "") -> None:
    """Refuse an operator that a program has defined, and for which it has registered no kernel for CUDA.

    PyTorch's own operators, and those of compiled extensions, are not refused: a build of an extension for the CPU
    has no kernels for CUDA, even if its build for CUDA has.

    Raises:
        NotImplementedError: A real GPU has no kernel of the operator.
    """
    name = str(op._schema.name)
    overload = op._schema.overload_name
    full = f"{name}.{overload}" if overload else name
    if full not in torch.library._defs:
        return
    kernels = torch.library._impls
    path = full.replace("::", "/", 1)
    from_program = f"{path}/{form}CPU" in kernels
    lacks_both = not form and not torch._C._dispatch_has_kernel_for_dispatch_key(full, "CPU")
    if (from_program or lacks_both) and f"{path}/{form}CUDA" not in kernels:
        raise _lacking_error(full, form, f"compute it on the CPU, or register a kernel of {full} for CUDA")


def _refuse(name: str, form: str) -> Callable[..., Any]:
    hint = f"compute it on the CPU: PyTorch has no kernel of {name} for CUDA"

    def kernel(*args: Any, **kwargs: Any) -> Any:
        raise _lacking_error("aten::" + name, form, hint)

    return kernel


def lacking_error(op: Any, form: str, hint: str) -> NotImplementedError:
    """Return CUDA's error for an operator that it lacks for a form of tensors."""
    overload = op._schema.overload_name
    return _lacking_error(f"{op._schema.name}.{overload}" if overload else str(op._schema.name), form, hint)


def _lacking_error(name: str, form: str, hint: str) -> NotImplementedError:
    """Return CUDA's error for an operator without a kernel."""
    return NotImplementedError(
        f"Could not run '{name}' with arguments from the '{form}CUDA' backend. This could be because the operator"
        " doesn't exist for this backend, or was omitted during the selective/custom build process (if using custom "
        f"build).\n\nHint: {hint}"
    )
