"""The hook in PyTorch's dispatcher through which operators on simulated GPUs run: its fallback kernel.

It runs the CPU's kernel on the arguments on the host. Operators in ``internals/kernels.py`` have their own kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from devshim.errors import DevshimError
from devshim_backends._torch.simulation.dtypes import UNSUPPORTED, compute_as_cuda
from devshim_backends._torch.simulation.internals import cpu_only, nested, quantized, sparse
from devshim_backends._torch.simulation.internals.cuda_only import lacking_error
from devshim_backends._torch.simulation.internals.generators import generator_for
from devshim_backends._torch.simulation.internals.host_arguments import ArgumentConverter
from devshim_backends._torch.simulation.internals.relabel import (
    HOST,
    relabel,
    to_host_keeping_bits,
)
from devshim_backends._torch.simulation.internals.schemas import (
    PLANS,
    OperatorPlan,
    nested_plan_of,
    plan_of,
    quantized_plan_of,
    sparse_plan_of,
)
from devshim_backends._torch.simulation.internals.state import SIMULATION, index_of, require_simulated
from devshim_backends._torch.simulation.internals.written_arguments import call_and_grow, call_in_place, call_into_out
from devshim_backends._torch.simulation.memory import adopt, full_error, host_is_full

_CPU = torch._C.DispatchKey.CPU
_HOST, _NOT_SEEN = -1, -2  # instead of a GPU's index
_Tensor, _get_device = torch.Tensor, torch._C.TensorBase.get_device
_CASTS = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
_CASTS |= torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)  # kernels call operators on a GPU, too
_autocasts = torch._C._is_any_autocast_enabled
_modes = torch._C._len_torch_function_stack


def fallback(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Compute one call of an operator; PyTorch's dispatcher calls this below autograd."""
    return run(PLANS.get(op) or plan_of(op), args, kwargs)


def refuse_nested(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Refuse an operator that PyTorch does not have for nested tensors on CUDA."""
    nested_plan_of(op)  # raises the error for an operator of the program
    raise cpu_only.lacking_error(op, nested.FORM, "use x.to_padded_tensor(0.0), or x.unbind(), first")


def refuse_quantized(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Refuse an operator that PyTorch does not have for quantized tensors on CUDA."""
    quantized_plan_of(op)
    raise cpu_only.lacking_error(op, quantized.FORM, "use x.dequantize() first, or compute it on the CPU")


def compute_nested(plan: OperatorPlan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute one call, with a nested tensor, of an operator with a known plan."""
    if plan.is_view:
        return _call_without_modes(nested.view, plan.kernel, args, kwargs)
    return run(plan, args, kwargs)


def compute_quantized(plan: OperatorPlan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute one call, with a quantized tensor, of an operator with a known plan."""
    if plan.is_view:
        return _call_without_modes(quantized.on_tensor, plan.kernel, args, kwargs)
    return run(plan, args, kwargs)


def fallback_sparse(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Compute one call of an operator with a sparse tensor, whose parts are relabelled one by one."""
    return compute_sparse(sparse_plan_of(op), args, kwargs)


def compute_sparse(plan: OperatorPlan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute one call, with a sparse tensor, of an operator with a known plan."""
    for name in plan.out_names:
        sparse.refuse_writing(kwargs.get(name))
    written = plan.is_inplace and args[0].layout in sparse.LAYOUTS
    if plan.is_view or written:
        return _call_without_modes(_compute_view_or_write, plan, args, kwargs)
    return run(plan, args, kwargs)


def _compute_view_or_write(plan: OperatorPlan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return a view of a sparse tensor as a new tensor; write an in-place result's parts back to the argument."""
    converter = ArgumentConverter(plan)
    converted, keywords = converter.convert_positional(args), converter.convert_keywords(kwargs)
    plan = converter.plan
    gpu = converter.choose_gpu(converted)
    if plan.is_view:
        return converter.convert_results(plan.call(*converted, **keywords), gpu)
    plan.call(*converted, **keywords)
    return sparse.replace_parts(args[0], adopt(converted[0], gpu))


def run(plan: OperatorPlan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute one call of an operator with a known plan."""
    try:
        if _modes() or _autocasts():
            return _call_without_modes(_compute, plan, args, kwargs)
        return _compute(plan, args, kwargs)
    except RuntimeError as error:  # the CPU may lack a kernel in a dtype that CUDA has
        if isinstance(error, DevshimError):
            raise
        if host_is_full(error, kwargs.get("device")):
            raise full_error(error, _gpu_of(args, kwargs)) from error
        result = _call_without_modes(compute_as_cuda, plan, args, kwargs)
        lacking = lacking_error(str(error)) if result is UNSUPPORTED else None
        if lacking is not None:
            raise lacking from error
        if result is UNSUPPORTED:
            raise  # here: a frame that received the error would keep it alive, with the tensors in it
        return result


def without_modes(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return a wrapper that runs a kernel without the user's modes and without autocast."""

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            if _modes() or _autocasts():
                return _call_without_modes(kernel, *args, **kwargs)
            return kernel(*args, **kwargs)
        except RuntimeError as error:
            if isinstance(error, DevshimError) or not host_is_full(error, kwargs.get("device")):
                raise
            raise full_error(error, _gpu_of(args, kwargs)) from error

    return wrapper


def _gpu_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Return the GPU of a call that failed: the one that it names, its first tensor's, or the current one."""
    device = kwargs.get("device")
    tensors = [each for each in (*args, *kwargs.values()) if isinstance(each, _Tensor)]
    of = [each.get_device() for each in tensors if each.get_device() >= 0]
    return of[0] if device is None and of else index_of(device)


def _call_without_modes(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function without user modes; ``torch.device(...)`` as a context is one of them."""
    with torch._C.DisableTorchFunction(), torch._C._ExcludeDispatchKeyGuard(_CASTS):
        return function(*args, **kwargs)


def _compute(plan: OperatorPlan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if plan.is_view:
        return _view(plan, args, kwargs)
    if plan.is_common and (not kwargs or (plan.keywords_are_plain and kwargs.get("device") is None)):
        result = _compute_common(plan, args, kwargs)
        if result is not NotImplemented:
            return result
    converter = ArgumentConverter(plan)
    converted = converter.convert_positional(args)
    keywords = converter.convert_keywords(kwargs) if kwargs else kwargs
    gpu, plan = converter.choose_gpu(converted), converter.plan
    if plan.only_computes:
        return converter.convert_results(plan.call(*converted, **keywords), gpu)
    if plan.generator_name is not None:
        _set_generator(plan, converted, keywords, gpu)
    if plan.out_names:
        return call_into_out(plan, converted, keywords, kwargs)
    if plan.is_inplace:
        return call_in_place(plan, args[0], converted, keywords)
    return converter.convert_results(call_and_grow(plan, args, converted, keywords), gpu)


def _view(plan: OperatorPlan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return a view of a GPU's tensor: the CPU's kernels for views touch no memory, so no relabelling is needed."""
    require_simulated(args[0].get_device())
    return plan.kernel(_CPU, *args, **kwargs)


def _compute_common(plan: OperatorPlan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute a call whose tensors are all on one GPU: a fast path, with the results of an `ArgumentConverter`.

    Return ``NotImplemented``, before anything is computed, for a call with a host tensor or several GPUs.
    """
    gpu = _NOT_SEEN
    converted = list(args)
    count = len(converted)
    for position, is_list in plan.tensor_positions:
        if position >= count:
            break
        value = converted[position]
        if isinstance(value, _Tensor):
            index = _get_device(value)
            if index != gpu:
                if gpu >= 0 or index < 0:
                    return NotImplemented
                gpu = index
            converted[position] = to_host_keeping_bits(value) if plan.accepts_lazy_bits else relabel(value, HOST)
        elif is_list and value is not None:
            gpu = _gpu_of_list(value, gpu)
            if gpu == _HOST:
                return NotImplemented
            converted[position] = [_to_host_or_none(plan, each) for each in value]
        elif value is not None and not plan.accepts_numbers:
            return NotImplemented
    if not 0 <= gpu < SIMULATION.count:
        return NotImplemented
    if plan.is_inplace:
        return call_in_place(plan, args[0], converted, kwargs)
    return _adopt_results(plan.call(*converted, **kwargs), gpu, args, converted)


def _gpu_of_list(values: Any, gpu: int) -> int:
    """Return the GPU of the tensors in a list and of the call's earlier tensors; `_HOST` if not exactly one."""
    for value in values:
        if value is not None:
            index = int(_get_device(value))
            if index != gpu:
                if gpu >= 0 or index < 0:
                    return _HOST
                gpu = index
    return gpu


def _to_host_or_none(plan: OperatorPlan, tensor: Any) -> Any:
    if tensor is None:
        return None
    return to_host_keeping_bits(tensor) if plan.accepts_lazy_bits else relabel(tensor, HOST)


def _adopt_results(result: Any, gpu: int, args: tuple[Any, ...], converted: list[Any]) -> Any:
    """Return results as the GPU's: an argument as itself, every other tensor as a new one."""
    if not isinstance(result, _Tensor):
        if isinstance(result, (tuple, list)):
            return type(result)([_adopt_results(each, gpu, args, converted) for each in result])
        return result
    for position, argument in enumerate(converted):
        if argument is result:
            return args[position]
        if type(argument) is list:
            for index, each in enumerate(argument):
                if each is result:
                    return args[position][index]
    return adopt(result, gpu)


def _set_generator(plan: OperatorPlan, converted: list[Any], keywords: dict[str, Any], gpu: int) -> None:
    """Make a call draw from the GPU's own generator, or from the given one for that GPU."""
    name = plan.generator_name
    assert name is not None
    for position, value in enumerate(converted):
        if isinstance(value, torch._C.Generator):
            converted[position] = generator_for(value, gpu)
            return
    keywords[name] = generator_for(keywords.get(name), gpu)
