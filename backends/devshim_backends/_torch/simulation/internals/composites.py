"""Operators that run on the CPU as one call, although PyTorch would decompose them first.

For an unknown device, PyTorch runs most operators as two or more smaller ones, and each would reach the dispatcher:
``x + y`` as an allocation and an addition with ``out=``, ``layer_norm`` as a dozen. PyTorch decomposes some operators
only after it checks the kind of device. As one call, they cost one dispatch, and round as the CPU does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from devshim_backends._torch.simulation import dtypes
from devshim_backends._torch.simulation.device_rules import MixedDevicesError
from devshim_backends._torch.simulation.hooks import (
    compute_nested,
    compute_quantized,
    compute_sparse,
    run,
    without_modes,
)
from devshim_backends._torch.simulation.internals import (
    cpu_only,
    linalg_drivers,
    lu_without_pivots,
    nested,
    product_limits,
    quantized,
    sparse,
)
from devshim_backends._torch.simulation.internals.kernels import (
    KERNELS,
    copy,
    copy_quantized,
    empty_per_channel,
    to_copy,
)
from devshim_backends._torch.simulation.internals.schemas import (
    OperatorPlan,
    nested_plan_of,
    plan_of,
    quantized_plan_of,
    sparse_plan_of,
)
from devshim_backends._torch.simulation.memory import adopt

CREATING = (
    *("arange", "arange.start", "arange.start_step", "eye", "eye.m", "linspace", "logspace", "range", "range.step"),
    *("kaiser_window", "kaiser_window.periodic", "kaiser_window.beta"),
)
"""Operators that create a tensor, which PyTorch decomposes into an allocation and a call with ``out=``."""

COMPOSED = (
    *("_stack", "addr", "all.dims", "any.dims", "linalg__powsum", "native_group_norm", "native_layer_norm"),
    *("mish_backward", "silu_backward", "native_channel_shuffle", "convolution_backward"),
    *("clone", "zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"),
    *CREATING,
    *("scalar_tensor", "mean", "sum", "mv", "stack", "constant_pad_nd", "repeat", "embedding", "count_nonzero"),
    *("masked_fill.Scalar", "masked_fill.Tensor", "index_put", "index_put_", "index_fill.int_Scalar", "celu"),
    *("logical_and", "logical_or", "logical_not", "logical_xor", "isinf", "abs", "nan_to_num", "logsumexp", "dist"),
    *("sort", "mode.values", "norm.Scalar", "norm.ScalarOpt_dtype", "conj_physical_", "_unsafe_view"),
    *("select_backward", "slice_backward", "diagonal_backward", "binary_cross_entropy_with_logits"),
    *("smooth_l1_loss_backward", "huber_loss_backward"),
)
"""Operators that PyTorch also decomposes for the CPU; these are common, or depend on the kind of device."""


def kernels() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the name and kernel of each operator that runs as one call; a kernel reads the schema at its first call."""
    known = {name for name in COMPOSED if torch._C._dispatch_has_kernel(f"aten::{name}")}
    special = {"convolution": _convolution_kernel(), "_convolution": as_one_call("_convolution")}
    special |= dict(cpu_only.iter_refusing_kernels(cpu_only.DENSE))
    special |= dict(linalg_drivers.kernels(as_one_call)) | dict(product_limits.kernels(as_one_call))
    special |= dict(lu_without_pivots.kernels(as_one_call))
    names = _structured_operators() | known | _foreach_operators() | _in_cudas_dtypes()
    for name in sorted(names - set(KERNELS) - set(special)):
        yield name, _foreach_kernel(name) if name.startswith("_foreach_") else as_one_call(name)
    yield from special.items()


def sparse_kernels(form: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the kernels for a form of sparse tensors, where PyTorch would otherwise use its kernels for dense ones."""
    operators = {name: without_modes(kernel) for name, kernel in sparse.reader_kernels()}
    composed = _registered_operators("CompositeExplicitAutograd") | _registered_operators("CompositeImplicitAutograd")
    composed |= _registered_operators("CompositeExplicitAutogradNonFunctional")
    for name in sorted(_registered_operators(f"{form}CPU") & composed - set(operators)):
        operators[name] = as_one_call(name, compute_sparse, sparse_plan_of)
    if form == "Sparse":
        operators["_sparse_coo_tensor_with_dims_and_tensors"] = without_modes(sparse.make_coo)
    if form == "SparseCsr":
        operators.update(cpu_only.iter_refusing_kernels(cpu_only.SPARSE_CSR, form))
    operators["_to_copy"] = without_modes(to_copy)
    yield from operators.items()


def nested_kernels() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the kernels for nested tensors; those that are not listed would be decomposed, as for dense ones."""
    special = dict(nested.layout_kernels())
    special |= {"_to_copy": without_modes(to_copy), "copy_": without_modes(copy)}
    special |= {"native_dropout": nested.dropout, "native_dropout_backward": nested.dropout_backward}
    special |= {"_fused_sdp_choice": lambda *args, **kwargs: 0}  # the formula
    for name in nested.names():
        yield name, special.get(name) or as_one_call(name, compute_nested, nested_plan_of)


def quantized_kernels() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the kernels for quantized tensors."""
    yield from quantized.reader_kernels(adopt)
    yield from {"_to_copy": without_modes(to_copy), "copy_": without_modes(copy_quantized)}.items()
    yield "_empty_per_channel_affine_quantized", without_modes(empty_per_channel)
    for name in (*quantized.COMPUTED, *quantized.VIEWS):
        yield name, as_one_call(name, compute_quantized, quantized_plan_of)


def operator(name: str) -> Any:
    """Return the operator with a name such as ``pow.Tensor_Scalar``; None if this PyTorch lacks it."""
    base, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, base, None), overload or "default", None)


def _registered_operators(key: str) -> set[str]:
    operators = torch._C._dispatch_get_registrations_for_dispatch_key(key)
    return {name.removeprefix("aten::") for name in operators if name.startswith("aten::")}


def _structured_operators() -> set[str]:
    """Return the operators that are an allocation and a call with ``out=`` for devices without their own kernel."""
    return _registered_operators("CompositeExplicitAutogradNonFunctional") & _registered_operators("CPU")


def _foreach_operators() -> set[str]:
    """Return the operators on lists of tensors, which are one call for each tensor."""
    operators = {name for name in _registered_operators("CompositeExplicitAutograd") if name.startswith("_foreach_")}
    return {name for name in operators if not name.endswith("out")}


def _in_cudas_dtypes() -> set[str]:
    """Return the operators, with those into ``out=``, that CUDA lacks in some dtypes."""
    names = {f"{name}{form}" for name in dtypes.LACKING for form in ("", ".out")}
    return names & _registered_operators("CPU")


def as_one_call(
    name: str, compute: Callable[..., Any] = run, make_plan: Callable[[Any], OperatorPlan] = plan_of
) -> Callable[..., Any]:
    """Return a kernel that computes an operator by one call of `compute`; it refuses the dtypes that CUDA lacks."""
    plan: OperatorPlan | None = None
    base = name.partition(".")[0]

    def kernel(*args: Any, **kwargs: Any) -> Any:
        nonlocal plan
        if plan is None:
            plan = make_plan(operator(name))
        return compute(plan, args, kwargs)

    def kernel_in_cudas_dtypes(*args: Any, **kwargs: Any) -> Any:
        nonlocal plan
        dtype = getattr(args[0], "dtype", None) or args[1].dtype  # the first factor of a product may be a number
        if dtype in lacking and all(each.numel() for each in args if isinstance(each, torch.Tensor)):
            raise dtypes.unsupported_dtype_error(base, dtype)
        if plan is None:
            plan = make_plan(operator(name))
        return compute(plan, args, kwargs)

    if base not in dtypes.LACKING:
        return kernel
    lacking = dtypes.LACKING[base][0]
    return kernel_in_cudas_dtypes


def _convolution_kernel() -> Callable[..., Any]:
    """Return a kernel that `torch.jit.trace` records: it records ``_convolution``, which PyTorch's own kernel calls."""
    compute, composite = as_one_call("convolution"), torch._C.DispatchKey.CompositeExplicitAutograd

    def kernel(*args: Any, **kwargs: Any) -> Any:
        if torch._C._get_tracing_state() is None:
            return compute(*args, **kwargs)
        return operator("convolution")._op_dk(composite, *args, **kwargs)

    return kernel


def _foreach_kernel(name: str) -> Callable[..., Any]:
    """Return a kernel for lists; as on a real GPU, a list with tensors of several devices is computed one by one."""
    fallback, composite = as_one_call(name), torch._C.DispatchKey.CompositeExplicitAutograd

    def kernel(*args: Any, **kwargs: Any) -> Any:
        try:
            return fallback(*args, **kwargs)
        except MixedDevicesError:
            return operator(name)._op_dk(composite, *args, **kwargs)

    return dtypes.on_cudas_lists(name, kernel)
