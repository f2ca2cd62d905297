"""The names that the lists of ``paddle.amp.auto_cast`` have for operators.

Paddle's C++ looks up one name for each operator: the one from before 2.0, if it had another one (``TransToFluidOpName``
in 3.0 to 3.3). So ``{"matmul"}`` names no operator in a list, and ``{"matmul_v2"}`` names ``paddle.matmul``.
"""

from __future__ import annotations

from typing import Any

import paddle

from devshim_backends._paddle.devices import core

__all__ = ["is_linear_two_operators", "name_in_lists"]

_OLD = {
    **{name: f"reduce_{name}" for name in ("all", "amax", "amin", "any", "max", "mean", "min", "prod", "sum")},
    **{name: f"{name}2" for name in ("squeeze", "transpose", "unsqueeze")},
    **{
        name: f"{name}_v2"
        for name in (
            *("bicubic_interp", "bilinear_interp", "diag", "expand", "expand_as", "generate_proposals", "isfinite"),
            *("isinf", "isnan", "linear_interp", "matmul", "nearest_interp", "one_hot", "trilinear_interp"),
        )
    },
    **{name: f"elementwise_{name}" for name in ("fmax", "fmin", "heaviside")},
    **{name: f"hard_{name.removeprefix('hard')}" for name in ("hardshrink", "hardsigmoid", "hardswish")},
    **{name: f"graph_{name}" for name in ("send_u_recv", "send_ue_recv", "send_uv")},
    "add": "elementwise_add",
    "add_n": "sum",
    "arange": "range",
    "argmax": "arg_max",
    "argmin": "arg_min",
    "bilinear": "bilinear_tensor_product",
    "crop": "crop_tensor",
    "cross_entropy_with_softmax": "softmax_with_cross_entropy",
    "deformable_conv": "deformable_conv_v1",
    "det": "determinant",
    "divide": "elementwise_div",
    "embedding": "lookup_table_v2",
    "fill": "fill_any",
    "flatten": "flatten_contiguous_range",
    "floor_divide": "elementwise_floordiv",
    "full": "fill_constant",
    "full_batch_size_like": "fill_constant_batch_size_like",
    "full_like": "fill_any_like",
    "gaussian": "gaussian_random",
    "grid_sample": "grid_sampler",
    "hardtanh": "brelu",
    "hsigmoid_loss": "hierarchical_sigmoid",
    "matmul_with_flatten": "mul",
    "maximum": "elementwise_max",
    "mean_all": "mean",
    "minimum": "elementwise_min",
    "multiply": "elementwise_mul",
    "nonzero": "where_index",
    "numel": "size",
    "reindex_graph": "graph_reindex",
    "remainder": "elementwise_mod",
    "slogdet": "slogdeterminant",
    "subtract": "elementwise_sub",
    "topk": "top_k_v2",
    "uniform": "uniform_random",
    "uniform_inplace": "uniform_random_inplace",
    "yolo_loss": "yolov3_loss",
}
"""Operator -> its name in the lists, if it is another one."""

_OPERATORS_OF_METHODS = {
    **{f"__{each}__": "add" for each in ("add", "radd")},
    **{f"__{each}__": "subtract" for each in ("sub", "rsub")},
    **{f"__{each}__": "multiply" for each in ("mul", "rmul")},
    **{f"__{each}__": "divide" for each in ("div", "rdiv", "truediv", "rtruediv")},
    **{f"__{each}__": "floor_divide" for each in ("floordiv", "rfloordiv")},
    **{f"__{each}__": "elementwise_pow" for each in ("pow", "rpow")},
    **{f"__{each}__": "matmul" for each in ("matmul", "rmatmul")},
    "__mod__": "remainder",
    "__gt__": "greater_than",
    "__ge__": "greater_equal",
    "__lt__": "less_than",
    "__le__": "less_equal",
    "__eq__": "equal",
    "__ne__": "not_equal",
    "__getitem__": "slice",
    "clone": "assign",
}
"""Method of a tensor -> the operator that it calls for another tensor."""

_DIVIDE_BY_NUMBER = "div_scale" if hasattr(paddle._C_ops, "div_scale") else "scale"  # 3.0: "scale"
_WITH_NUMBER = {
    **{f"__{each}__": "scale" for each in ("add", "radd", "sub", "rsub", "mul", "rmul")},
    **{f"__{each}__": _DIVIDE_BY_NUMBER for each in ("div", "truediv")},
    "__pow__": "pow",
}
"""Method of a tensor -> the operator that it calls for a number, if it is another one."""

_HAS_LINEAR = hasattr(paddle._C_ops, "linear_v2")  # not in 3.0
_LEGACY_LINEAR = "FLAGS_use_legacy_linear"


def is_linear_two_operators(args: tuple[Any, ...]) -> bool:
    """Return True if ``linear`` with these arguments multiplies and then adds, on a real GPU."""
    has_bias = len(args) > 2 and args[2] is not None
    return has_bias and (not _HAS_LINEAR or paddle.get_flags(_LEGACY_LINEAR)[_LEGACY_LINEAR])


def name_in_lists(name: str, args: tuple[Any, ...]) -> str:
    """Return the name that the lists have for an operator, or for a method of a tensor, with these arguments."""
    if name == "linear":  # with a bias, a build for CUDA calls another operator
        return "linear_v2" if len(args) > 2 and args[2] is not None else "matmul_v2"
    if name in _WITH_NUMBER and not isinstance(args[1], core.eager.Tensor):
        return _WITH_NUMBER[name]
    name = _OPERATORS_OF_METHODS.get(name, name)
    return _OLD.get(name, name)
