"""Operators that PyTorch has for CUDA and not for the CPU, and that simulated GPUs refuse.

Source: the dispatch tables of ``native_functions.yaml`` in PyTorch 2.13, which the wheel contains (package
``torchgen``); a test compares them with this table and with the kernels of this package.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_ROCM = "only PyTorch's builds for GPUs of AMD compute it: leave out the operators of MIOpen"
_HOPPER = "it needs compute capability 9.0, and simulated GPUs have 8.0: use 16-bit matrices"
_NEWER = "it needs compute capability 9.0, and simulated GPUs have 8.0: use 16-bit tensors"
_RECURRENT = "its weights are in the memory layout of cuDNN: use torch.nn.LSTM, GRU or RNN"
_CTC = "it is called by PyTorch itself: use torch.nn.functional.ctc_loss"
_ATTENTION = "it is called by PyTorch itself: use torch.nn.functional.scaled_dot_product_attention"
_TRITON = "Triton compiles it for real GPUs only: use torch.nn.functional.scaled_dot_product_attention"
_PRUNED = "its result depends on CUTLASS: prune the matrix, and use torch.sparse.to_sparse_semi_structured"
_PHILOX = "its numbers are those of CUDA's generator: use torch.Generator"

REFUSED: Mapping[str, str] = {
    **dict.fromkeys(("_cudnn_rnn", "_cudnn_rnn_backward"), _RECURRENT),
    **dict.fromkeys(("_cudnn_rnn_flatten_weight", "_cudnn_init_dropout_state"), _RECURRENT),
    **dict.fromkeys(("_cudnn_ctc_loss", "_cudnn_ctc_loss.Tensor"), _CTC),
    **dict.fromkeys(("_cudnn_attention_forward", "_cudnn_attention_backward"), _ATTENTION),
    **dict.fromkeys(("_flash_attention_forward_no_dropout_inplace", "_fill_mem_eff_dropout_mask_"), _ATTENTION),
    **dict.fromkeys(("_scaled_dot_product_flash_attention.quantized", "_flash_attention_forward.quantized"), _NEWER),
    **dict.fromkeys(("_scaled_grouped_mm", "_scaled_grouped_mm_v2"), _HOPPER),
    **dict.fromkeys(("_triton_scaled_dot_attention", "_triton_multi_head_attention"), _TRITON),
    **dict.fromkeys(("_sparse_semi_structured_tile", "_sparse_semi_structured_apply"), _PRUNED),
    "_sparse_semi_structured_apply_dense": _PRUNED,
    "_mixed_dtypes_linear": "its weights are in the memory layout of CUTLASS: convert them to the dtype of the input",
    **dict.fromkeys(("_philox_key_split", "_philox_key_fold_in", "_philox_normal_", "_philox_uniform_"), _PHILOX),
    **dict.fromkeys(("miopen_batch_norm", "miopen_batch_norm_backward", "miopen_rnn", "miopen_rnn_backward"), _ROCM),
    **dict.fromkeys(("miopen_convolution", "miopen_convolution_transpose", "miopen_depthwise_convolution"), _ROCM),
    **dict.fromkeys(("miopen_convolution_relu", "miopen_convolution_add_relu"), _ROCM),
    **dict.fromkeys(("miopen_ctc_loss", "miopen_ctc_loss.Tensor"), _ROCM),
    **dict.fromkeys(("_use_miopen_ctc_loss", "_use_miopen_ctc_loss.Tensor"), _ROCM),
}
"""Operator on dense tensors -> the reason, a colon, and what to write instead."""
REFUSED_SPARSE_CSR: Mapping[str, str] = {
    "_spsolve": "it needs cuDSS, which PyTorch's own builds lack: use torch.linalg.solve(a.to_dense(), b)",
}
"""The same for an operator on tensors with compressed rows."""

_LACKING = re.compile(r"^Could not run 'aten::([^']+)' with arguments from the '(SparseCsr)?CPU' backend")
_LACKING_OTHER = re.compile(r"^Could not run '([^']+)' with arguments from the 'CPU' backend")


def lacking_error(text: str) -> NotImplementedError | None:
    """Return the error for an operator that PyTorch lacks for the CPU, or None for another error.

    Args:
        text: The error of PyTorch's CPU build.
    """
    found = _LACKING.match(text)
    reasons = REFUSED_SPARSE_CSR if found and found[2] else REFUSED
    if found and found[1] in reasons:
        why, _, instead = reasons[found[1]].partition(": ")
        return _error(f"aten::{found[1]}", why, instead)
    other = _LACKING_OTHER.match(text)
    if other is None:
        return None
    library = other[1].partition("::")[0].replace("aten", "PyTorch")
    why = f"the CPU computes for it, where {library} has no kernel of {other[1]}"
    if library != "PyTorch":
        why = f"it cannot run the kernels that {library} has compiled for CUDA, and {library} has none for the CPU"
    return _error(other[1], why, "run this part on a real GPU, or write it with other operators")


def _error(name: str, why: str, instead: str) -> NotImplementedError:
    return NotImplementedError(f"Could not run '{name}' on a simulated GPU: {why}\n\nHint: {instead}")
