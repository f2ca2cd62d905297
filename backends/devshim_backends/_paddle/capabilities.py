"""The gaps of PaddlePaddle and of this adapter, with reasons.

The support table is generated from them, so this module imports no framework.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from devshim.contract.backend import Gap

if TYPE_CHECKING:
    from collections.abc import Mapping

_NO_TRACED_GRADIENTS = Gap(
    "upstream",
    "paddle.grad works on eager tensors",
    "compile the function, and differentiate the compiled one",
)

GAPS: Mapping[str, Gap] = MappingProxyType(
    {
        "trace_gradient": _NO_TRACED_GRADIENTS,
        "trace_gradient_models": _NO_TRACED_GRADIENTS,
        "op_scope": Gap(
            "never",
            "PaddlePaddle's operators compute on the device of their arguments, so a scope affects only creation",
        ),
        "refuse_mixing": Gap(
            "upstream",
            "PaddlePaddle (3.3 and older) does not check devices: on real GPUs, mixed arguments give a result on one "
            "of the devices, or an illegal memory access (PaddlePaddle/Paddle#51706, #71667); on simulated GPUs, "
            "devshim refuses them",
        ),
    }
)

LIMITS: Mapping[str, str] = MappingProxyType(
    {
        "native_names": (
            "refused: paddle.amp.auto_cast inside a function that is compiled as one program, pinned memory, sparse "
            "tensors, DLPack, CUDA graphs, collectives of several processes (NCCL), and operators whose kernel Paddle "
            "has only in its builds for CUDA, such as margin_cross_entropy; paddle.version.nccl() and show() report "
            "the CPU build; paddle.base.core.CUDAPlace is Paddle's own, and refused"
        ),
        "simulate": (
            "a function that a program imported from Paddle before GPUs were simulated does not refuse tensors on two "
            "simulated GPUs, or on one that was removed"
        ),
        "follow_data": (
            "functions of Paddle that create tensors, such as paddle.where with Python numbers, create them "
            "on the default device: for another GPU, call them with ds.run, or inside ds.on with the tensors' device"
        ),
        "several": (
            "in your own threads, use a lock around paddle.grad, compiling, and a function that was compiled as one "
            "program (full_graph=True): in two threads at once they end the process or give wrong values (seen on "
            "3.3.1); the threads of ds.parallel take turns, or are refused"
        ),
        "models": (
            "every class in paddle.optimizer is supported; LBFGS, use_multi_tensor and ClipGradByGlobalNorm are "
            "refused for a model over several devices, because they compute with all parameters together"
        ),
        "guard": (
            "reports reads by tensors' own methods and np.asarray, masks, and operands on other devices; on real GPUs, "
            "does not report what functions such as paddle.unique and paddle.add read or copy internally"
        ),
    }
)

NO_KERNEL = "Paddle has a kernel for it only in its builds for CUDA"
_ATTENTION = "use paddle.nn.functional.scaled_dot_product_attention"
_QUANTIZED = "multiply with the weight in float16 or float32, without quantization"
_FUSED = "use the operators of paddle.nn.functional that it combines"
_NO_OTHER = "run this part on a real GPU"
_INCUBATE = "paddle.incubate.nn.functional"

CUDA_KERNELS: Mapping[str, str] = MappingProxyType(
    {
        "paddle.nn.functional.margin_cross_entropy": (
            "add the margin to the logits of the labels, and call paddle.nn.functional.cross_entropy"
        ),
        **{
            f"paddle.nn.functional.{name}": _ATTENTION
            for name in (
                *("sparse_attention", "flashmask_attention", "flash_attention.flashmask_attention"),
                *("flash_attention.flash_attn_unpadded", "flash_attention.flash_attn_varlen_func"),
                *("flash_attention.flash_attn_varlen_qkvpacked", "flash_attention.calc_reduced_attention_scores"),
            )
        },
        **{
            f"paddle.nn.functional.{name}": "index the tokens of each expert"
            for name in ("moe_permute", "moe_unpermute")
        },
        "paddle.tensor.top_p_sampling": "sort the probabilities, and use paddle.multinomial for those that remain",
        "paddle.Tensor.top_p_sampling": "sort the probabilities, and use paddle.multinomial for those that remain",
        "paddle.linalg.fp8_fp8_half_gemm_fused": "cast to float16, and use paddle.matmul",
        "paddle.nn.quant.weight_quantize": "quantize a copy on the host: weight_quantize(x.cpu(), arch=80)",
        **{
            f"paddle.nn.quant.{name}": _QUANTIZED
            for name in ("weight_dequantize", "weight_only_linear", "llm_int8_linear", "apply_per_channel_scale")
        },
        "paddle.vision.ops.decode_jpeg": "decode on the host, with PIL or OpenCV",
        "paddle.incubate.nn.FusedMultiHeadAttention": "use paddle.nn.MultiHeadAttention",
        "paddle.incubate.nn.FusedFeedForward": "use two layers paddle.nn.Linear",
        "paddle.incubate.nn.FusedTransformerEncoderLayer": "use paddle.nn.TransformerEncoderLayer",
        "paddle.incubate.nn.FusedMultiTransformer": "use paddle.nn.TransformerEncoder",
        "paddle.incubate.nn.FusedBiasDropoutResidualLayerNorm": "use paddle.nn.Dropout and paddle.nn.LayerNorm",
        "paddle.incubate.nn.memory_efficient_attention": _ATTENTION,
        **{
            f"{_INCUBATE}.{name}": _ATTENTION
            for name in (
                *("fused_multi_head_attention", "fused_gate_attention", "masked_multihead_attention"),
                *("block_multihead_attention", "variable_length_memory_efficient_attention"),
                *("fused_dot_product_attention", "cudnn_flash_attention", "blha_get_max_len"),
            )
        },
        **{
            f"{_INCUBATE}.{name}": _FUSED
            for name in (
                *("fused_feedforward", "fused_bias_dropout_residual_layer_norm", "fused_multi_transformer"),
                *("fused_rotary_position_embedding", "fused_partial_rope", "fused_bias_act", "fused_rms_norm_ext"),
                *("fast_ln", "fast_rms_norm", "batched_gemm", "int_bincount", "embedding_grad_add_to_", "cal_aux_loss"),
                *("cross_entropy_with_softmax_bwd_w_downcast", "moe_gate_dispatch", "moe_gate_dispatch_permute"),
                *("moe_gate_dispatch_partial_nosoftmaxtopk", "moe_gate_dispatch_and_quant", "moe_combine"),
                *("moe_combine_no_weight", "expand_modality_expert_id", "build_src_rank_and_local_expert_id"),
            )
        },
        **{
            f"{_INCUBATE}.{name}": _QUANTIZED
            for name in (
                *("fp8_gemm_blockwise", "fp8_quant_blockwise", "fused_act_dequant", "fused_stack_transpose_quant"),
                *("fused_swiglu_weighted_bwd", "fused_transpose_split_quant", "fused_transpose_wlch_split_quant"),
                "fused_weighted_swiglu_act_quant",
            )
        },
        **{f"paddle.incubate.layers.{name}": _NO_OTHER for name in ("batch_fc", "correlation", "rank_attention")},
    }
)
"""A native call that needs a kernel which Paddle has only for CUDA -> what to use instead.

A build for the CPU refuses it too. An operator that is not in this table is refused with a general hint.
"""

_PROCESSES = "several processes exchange the tensors of GPUs by NCCL: use ds.launch"
_SPARSE = "sparse tensors are computed on the host only: make them there, with place=paddle.CPUPlace()"
NOT_SIMULATED: Mapping[str, str] = MappingProxyType(
    {
        "paddle.device.cuda.graphs": "it records the work of a real GPU: call the function itself",
        "paddle.device.cuda.allocate_record": "it is not recorded: use paddle.device.cuda.memory_summary()",
        **dict.fromkeys(
            ("paddle.device.get_stream_from_external", "paddle.cuda.get_stream_from_external"),
            "it names a stream of a real GPU by its address: use paddle.device.Stream()",
        ),
        **dict.fromkeys(
            ("paddle.cuda.cudart", "paddle.cuda.check_error"),
            "it calls the runtime of CUDA: use paddle.device.cuda, such as paddle.device.cuda.mem_get_info()",
        ),
        **dict.fromkeys(("paddle.distributed.spawn", "paddle.distributed.launch"), _PROCESSES),
        "paddle.CUDAPinnedPlace": "it is memory that is pinned for CUDA: use paddle.CPUPlace()",
        "paddle.inference.convert_to_mixed_precision": (
            "Paddle converts operators that have a kernel for CUDA in that dtype, and its build for CPUs has none: "
            "compute in float32, without this call or precision_mode"
        ),
        "paddle.inference.Config.enable_tensorrt_engine": "it compiles for real GPUs only: leave this line out",
        "paddle.inference.Tensor.share_external_data": (
            "predictors compute on the host: pass the tensor to predictor.run([x]), or use copy_from_cpu(x.numpy())"
        ),
        **dict.fromkeys(("paddle.sparse.sparse_coo_tensor", "paddle.sparse.sparse_csr_tensor"), _SPARSE),
        **{name: f"{NO_KERNEL}: {instead}" for name, instead in CUDA_KERNELS.items()},
        "paddle.utils.cpp_extension.CUDAExtension": "it compiles for real GPUs only: use CppExtension for the CPU",
    }
)
"""A native call, or the beginning of its name, that simulated GPUs cannot run -> why, and what to do instead."""

COMPILES_SOURCES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "paddle.utils.cpp_extension.load": ("name", "sources"),
        "paddle.utils.cpp_extension.CppExtension": ("sources",),
    }
)
"""A function that compiles sources -> its first parameters. It fails if a source is for CUDA."""
