"""Operators that CUDA computes in a dtype for which PyTorch's CPU build has no kernel.

Source: ``dtypesIfCUDA`` compared with ``dtypes`` in PyTorch 2.13's operator database, with each pair tried on the CPU;
``nox -s opinfo`` tries all of them again. The CPU's kernel is called first, so that an operator that a later PyTorch
supports on the CPU uses PyTorch's kernel again. A dtype that neither supports (``torch.linalg.inv`` of float16) is
refused on both.

Most of these operators are computed as CUDA computes them: in the next wider dtype, and rounded at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from devshim_backends._torch.simulation.device_rules import different_devices_error

aten = torch.ops.aten

_HALVES = {torch.float16: torch.float32, torch.bfloat16: torch.float32}
_COMPLEX = {torch.complex32: torch.complex64}

WIDER: Mapping[str, Mapping[torch.dtype, torch.dtype]] = {
    **dict.fromkeys(("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "sin", "sinh"), _COMPLEX),
    **dict.fromkeys(("tan", "tanh", "tanh_backward", "exp", "log", "logaddexp", "pow", "sqrt", "rsqrt"), _COMPLEX),
    **dict.fromkeys(("sigmoid", "sigmoid_backward", "angle", "lerp", "div", "sum", "prod", "reciprocal"), _COMPLEX),
    **dict.fromkeys(("avg_pool3d", "avg_pool3d_backward"), _HALVES),
    **dict.fromkeys(("_upsample_bilinear2d_aa", "_upsample_bilinear2d_aa_backward"), _HALVES),
    **dict.fromkeys(("multi_margin_loss", "multi_margin_loss_backward"), _HALVES),
    **dict.fromkeys(("multilabel_margin_loss_forward", "multilabel_margin_loss_backward"), _HALVES),
    **dict.fromkeys(("rrelu_with_noise", "rrelu_with_noise_backward"), _HALVES),
    "abs": {torch.bool: torch.uint8},
}
"""Operator -> the dtypes that only CUDA supports, each with the dtype to compute it in."""

_NARROW = {torch.complex64: torch.complex32, torch.float32: torch.float16, torch.uint8: torch.bool}


UNSUPPORTED = object()
"""The result for a call that CUDA also refuses."""


def compute_as_cuda(plan: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute a call that the CPU's kernel has refused, as CUDA does; return `UNSUPPORTED` if CUDA also refuses it."""
    name = plan.name.removeprefix("aten::")
    formula = _FORMULAS.get(name)
    if formula is not None:
        result = formula(*args, **{key: value for key, value in kwargs.items() if key not in plan.out_names})
        if result is not None:
            return write(kwargs[plan.out_names[0]], result) if plan.out_names else result
    wider = WIDER.get(name) or WIDER.get(name.removesuffix("_"), {})
    narrow_dtypes = {value.dtype for value in _tensors((*args, *kwargs.values()))} & wider.keys()
    if not narrow_dtypes:
        return UNSUPPORTED
    return _compute_in_wider_dtype(plan, args, kwargs, wider, narrow_dtypes.pop())


def _compute_in_wider_dtype(
    plan: Any, args: tuple[Any, ...], kwargs: dict[str, Any], wider: Mapping[Any, Any], dtype: torch.dtype
) -> Any:
    """Compute a call in a wider dtype, and round its results, and the tensors it wrote to, to the original dtype."""
    pairs: list[tuple[Any, Any]] = []

    def widen(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dtype in wider:
            pairs.append((value, value.to(wider[value.dtype])))
            return pairs[-1][1]
        return wider.get(value, value) if isinstance(value, torch.dtype) else value

    result = plan.call(*map(widen, args), **{name: widen(value) for name, value in kwargs.items()})
    for original, wide in pairs if plan.writes_to_arguments else ():
        write(original, wide)
    originals = {id(wide): original for original, wide in pairs}
    chosen = kwargs.get("dtype")
    narrow = {wider[dtype]: dtype} if dtype in _HALVES else _NARROW
    keeps_dtype = chosen is not None and chosen not in wider

    def to_narrow(value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return type(value)(map(to_narrow, value))
        if id(value) in originals:
            return originals[id(value)]
        is_rounded = isinstance(value, torch.Tensor) and not keeps_dtype
        return value.to(narrow.get(value.dtype, value.dtype)) if is_rounded else value

    return to_narrow(result)


def write_out(name: str, target: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    """Write the result of an operator's own kernel to ``out=``, which must be on its device, and return that tensor."""
    devices = result.get_device(), target.get_device()
    if devices[0] != devices[1]:
        raise different_devices_error(name, *(devices if devices[0] >= 0 else devices[::-1]))
    return write(target, result)


def write(target: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    """Copy a result into an ``out=`` tensor, which gets its shape, and return that tensor."""
    if target.shape != result.shape:
        target.resize_(result.shape)
    return target.copy_(result)


def _tensors(values: tuple[Any, ...]) -> list[torch.Tensor]:
    return [value for value in values if isinstance(value, torch.Tensor)]


def _histc(x: torch.Tensor, bins: int = 100, min: Any = 0, max: Any = 0) -> torch.Tensor | None:
    """Count integers in bins with integer arithmetic, as CUDA does; floating-point input is left to the CPU."""
    if x.dtype.is_floating_point or x.dtype.is_complex or x.dtype is torch.bool:
        return None
    values, low, high = x.flatten().to(torch.int64), int(min), int(max)
    if low == high and values.numel():
        low, high = int(values.min()), int(values.max())
    if low == high:
        low, high = low - 1, high + 1
    if low > high:
        raise RuntimeError("max must be larger than min")
    inside = values[(values >= low) & (values <= high)]
    positions = torch.div((inside - low) * bins, high - low, rounding_mode="floor").clamp_(max=bins - 1)
    return torch.bincount(positions, minlength=bins).to(x.dtype)


def _trace(x: torch.Tensor) -> torch.Tensor | None:
    """Return the sum of the diagonal, in any dtype that a sum supports."""
    return x.diagonal().sum() if x.dim() == 2 else None


def _nansum(x: torch.Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> torch.Tensor | None:
    """Return the sum of the elements that are not NaN; a complex number is NaN if one of its parts is."""
    if not x.dtype.is_complex:
        return None
    without_nan = torch.where(torch.isnan(x), torch.zeros((), dtype=x.dtype, device=x.device), x)
    return torch.sum(without_nan, [] if dim is None else dim, keepdim, dtype=dtype)


def _bmm(batch1: torch.Tensor, batch2: torch.Tensor) -> torch.Tensor | None:
    """Return the products of matrices with compressed rows and dense ones, which the CPU only has for one pair."""
    return torch.bmm(batch1.to_dense(), batch2) if batch1.layout is torch.sparse_csr else None


def _baddbmm(x: torch.Tensor, batch1: torch.Tensor, batch2: torch.Tensor, **factors: Any) -> torch.Tensor | None:
    """Return the same products added to a dense tensor."""
    return torch.baddbmm(x, batch1.to_dense(), batch2, **factors) if batch1.layout is torch.sparse_csr else None


def _baddbmm_in_place(x: torch.Tensor, *batches: torch.Tensor, **factors: Any) -> torch.Tensor | None:
    result = _baddbmm(x, *batches, **factors)
    return None if result is None else x.copy_(result)


_FORMULAS: Mapping[str, Callable[..., torch.Tensor | None]] = {
    "histc": _histc,
    "trace": _trace,
    "nansum": _nansum,
    "bmm": _bmm,
    "baddbmm": _baddbmm,
    "baddbmm_": _baddbmm_in_place,
}
"""Operator -> its formula, which returns None for input that it does not cover."""

# ---------------------------------------------------------------------- dtypes that CUDA lacks
_INTEGERS = frozenset({torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})
_BOOL_AND_INTEGERS = _INTEGERS | {torch.bool}
_LONG, _BYTE = frozenset({torch.int64}), frozenset({torch.uint8})
_FLOAT8 = frozenset(
    {torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz, torch.float8_e8m0fnu}
)
_CUDNN = "getCudnnDataTypeFromScalarType() not supported for {}"

LACKING: Mapping[str, tuple[frozenset[torch.dtype], str]] = {
    **dict.fromkeys(("mm", "addmm", "addmm_", "addbmm"), (_BOOL_AND_INTEGERS | _FLOAT8, "addmm_cuda")),
    **dict.fromkeys(("bmm", "baddbmm", "baddbmm_"), (_BOOL_AND_INTEGERS | _FLOAT8, "baddbmm_cuda")),
    **dict.fromkeys(("addmv", "addmv_", "mv"), (_BOOL_AND_INTEGERS | _FLOAT8, "addmv_impl_cuda")),
    **{name: (_BOOL_AND_INTEGERS | _FLOAT8, name) for name in ("dot", "vdot")},
    **dict.fromkeys(("mul", "mul_"), (_FLOAT8, "mul_cuda")),
    **dict.fromkeys(("abs", "isinf"), (_FLOAT8, "abs_cuda")),
    "avg_pool2d": (_LONG | _FLOAT8, "avg_pool2d_out_cuda_frame"),
    "max_pool2d_with_indices": (_INTEGERS | _FLOAT8, "max_pool2d_with_indices_out_cuda_frame"),
    "max_pool3d_with_indices": (_INTEGERS | _FLOAT8, "max_pool3d_with_indices_out_frame"),
    "avg_pool3d": (_LONG | _FLOAT8, "avg_pool3d_out_cuda"),
    **{f"upsample_{mode}2d": (_BYTE, f"upsample_{mode}2d_out_frame") for mode in ("bilinear", "bicubic")},
    "convolution": (_INTEGERS | _FLOAT8, _CUDNN),
}
"""Operator -> dtypes of its first argument that CUDA lacks, and the name of CUDA's kernel.

PyTorch's CPU build has them, or refuses them in words of its own. Source: ``dtypes`` compared with ``dtypesIfCUDA`` in
PyTorch 2.13's operator database; the names are in the errors. For float8, which the database does not list, the source
is the errors alone. CUDA copies, compares and indexes float8, as the CPU does.
"""

_ON_LISTS = {
    **{
        f"_foreach_mul{form}{overload}": f"foreach_binary_op_{kind}_cuda{form}"
        for form in ("", "_")
        for overload, kind in (
            (".List", "list"),
            (".Scalar", "scalar"),
            (".ScalarList", "scalarlist"),
            (".Tensor", "scalar"),
        )
    },
    **{f"_foreach_abs{form}": f"foreach_unary_op_cuda{form}" for form in ("", "_")},
    "_foreach_zero_": "foreach_zero_cuda_",
}
"""Operator on lists -> the name of CUDA's kernel, which lacks float8, in the source of PyTorch."""

_SCALAR_TYPES = {
    torch.uint8: "Byte",
    torch.int8: "Char",
    torch.int16: "Short",
    torch.int32: "Int",
    torch.int64: "Long",
    torch.float16: "Half",
    torch.bfloat16: "BFloat16",
    torch.float32: "Float",
    torch.float64: "Double",
}


def scalar_type(dtype: torch.dtype) -> str:
    """Return the name that PyTorch's errors have for a dtype, such as ``Float8_e4m3fn``."""
    return _SCALAR_TYPES.get(dtype) or str(dtype).removeprefix("torch.").capitalize()


def unsupported_dtype_error(name: str, dtype: torch.dtype) -> RuntimeError:
    """Return CUDA's error for an operator in a dtype that it lacks."""
    kernel = LACKING[name][1]
    if kernel is _CUDNN:
        return RuntimeError(kernel.format(scalar_type(dtype)))
    return _not_implemented(kernel, dtype)


def _not_implemented(kernel: str, dtype: torch.dtype) -> NotImplementedError:
    return NotImplementedError(f"\"{kernel}\" not implemented for '{scalar_type(dtype)}'")


def on_cudas_lists(name: str, compute: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel for an operator on lists that refuses the dtypes of the first tensor that CUDA lacks."""
    kernel = _ON_LISTS.get(name)
    if kernel is None:
        return compute

    def compute_on_lists(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        if tensors and tensors[0].dtype in _FLOAT8:
            raise _not_implemented(kernel, tensors[0].dtype)
        return compute(tensors, *args, **kwargs)

    return compute_on_lists


# ---------------------------------------------------------------------- Fourier transforms

_TRANSFORMS = [f"fft_{kind}fft{form}" for kind in ("", "i", "r", "ir", "h", "ih") for form in ("", "2", "n")]
_HALF_PRECISION = {torch.float16: torch.float32, torch.complex32: torch.complex64}
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd


def make_transform_kernels() -> dict[str, Callable[..., Any]]:
    """Return kernels of the Fourier transforms, which cuFFT also supports for float16 and complex32."""
    return {name: _transform(getattr(aten, name).default) for name in _TRANSFORMS}


def _transform(op: Any) -> Callable[..., Any]:
    names = [argument.name for argument in op._schema.arguments]
    real = op._schema.name.removeprefix("aten::fft_").startswith(("rfft", "ihfft"))

    def kernel(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if x.dtype not in _HALF_PRECISION:
            return op._op_dk(_COMPOSITE, x, *args, **kwargs)
        result = op._op_dk(_COMPOSITE, x.to(_HALF_PRECISION[x.dtype]), *args, **kwargs)
        _require_powers_of_two(x, result, dict(zip(names[1:], args, strict=False)) | kwargs, names, real)
        return result.to(torch.complex32 if result.dtype.is_complex else torch.float16)

    return kernel


def _require_powers_of_two(
    x: torch.Tensor, result: torch.Tensor, arguments: dict[str, Any], names: list[str], real: bool
) -> None:
    """Refuse the sizes that cuFFT refuses in half precision; a real signal's result stores only half of it."""
    size = arguments.get("n", arguments.get("s"))
    dims = arguments.get("dim", -1 if "n" in names else [-2, -1] if names[0] == "fft_fft2" else None)
    sizes = [size] if isinstance(size, int) else size
    if dims is None:
        dims = list(range(-(len(sizes) if sizes else x.dim()), 0))
    dims = [dims] if isinstance(dims, int) else list(dims)
    signal = [result.shape[dim] for dim in dims]
    if real:
        signal[-1] = sizes[-1] if sizes and sizes[-1] != -1 else x.shape[dims[-1]]
    if any(each & (each - 1) for each in signal):
        msg = (
            "cuFFT only supports dimensions whose sizes are powers of two when computing in half precision, but got "
            f"a signal size of {signal}"
        )
        raise RuntimeError(msg)
