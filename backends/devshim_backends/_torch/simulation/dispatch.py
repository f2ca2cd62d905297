"""The general kernel for operators without one of their own here: the CPU's kernel, on the arguments on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from devshim.errors import DevshimError
from devshim_backends._torch.simulation import sparse
from devshim_backends._torch.simulation.cuda_dtypes import UNSERVED, serve
from devshim_backends._torch.simulation.generators import generator_for
from devshim_backends._torch.simulation.host_arguments import Carry
from devshim_backends._torch.simulation.memory import adopt
from devshim_backends._torch.simulation.relabel import not_simulated, to_host
from devshim_backends._torch.simulation.schemas import PLANS, Plan, plan_of, sparse_plan_of
from devshim_backends._torch.simulation.state import SHOWN, missing

_CPU = torch._C.DispatchKey.CPU
_CPU_CASTS = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
_autocasts = torch._C._is_any_autocast_enabled
_modes = torch._C._len_torch_function_stack
_empty = torch.ops.aten.empty.memory_format
_copy = torch.ops.aten.copy_.default
_clone = torch.ops.aten.clone.default
_resize = torch.ops.aten.resize_.default


def fallback(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Compute one call of an operator; PyTorch's dispatcher calls this below autograd."""
    return run(PLANS.get(op) or plan_of(op), args, kwargs)


def refuse(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Refuse an operator on a nested or quantized tensor, which simulated GPUs do not support."""
    raise not_simulated(None, str(op._schema.name))


def fallback_sparse(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Compute one call of an operator with a sparse tensor, whose parts are relabelled one by one."""
    return compute_sparse(sparse_plan_of(op), args, kwargs)


def compute_sparse(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute one call, with a sparse tensor, of an operator with a known plan."""
    for name in plan.out:
        sparse.refuse_writing(kwargs.get(name))
    written = plan.inplace and args[0].layout in sparse.LAYOUTS
    return _unseen(_apart, plan, args, kwargs) if plan.view or written else run(plan, args, kwargs)


def _apart(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return a view of a sparse tensor as a new tensor; write an in-place result's parts back to the argument."""
    carry = Carry(plan)
    moved, named = carry.positional(args), carry.named(kwargs)
    card = carry.settle()
    if plan.view:
        return carry.back(plan.call(*moved, **named), card)
    plan.call(*moved, **named)
    return sparse.give_parts(args[0], adopt(moved[0], card))


def run(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute one call of an operator with a known plan."""
    try:
        if _modes() or _autocasts():
            return _unseen(_compute, plan, args, kwargs)
        return _compute(plan, args, kwargs)
    except RuntimeError as error:  # the CPU may lack a kernel in a dtype that CUDA has
        if isinstance(error, DevshimError):
            raise
        served = _unseen(serve, plan, args, kwargs)
        if served is UNSERVED:
            raise  # here: a frame that received the error would keep it alive, with the tensors in it
        return served


def unseen(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return a wrapper that runs a kernel without the user's modes and ``torch.autocast("cpu")``."""

    def called(*args: Any, **kwargs: Any) -> Any:
        if _modes() or _autocasts():
            return _unseen(kernel, *args, **kwargs)
        return kernel(*args, **kwargs)

    return called


def _unseen(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function without them; ``torch.device(...)`` as a context is such a mode."""
    with torch._C.DisableTorchFunction(), torch._C._ExcludeDispatchKeyGuard(_CPU_CASTS):
        return function(*args, **kwargs)


def _compute(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if plan.view:
        return _view(plan, args, kwargs)
    carry = Carry(plan)
    moved = carry.positional(args)
    named = carry.named(kwargs) if kwargs else kwargs
    card = carry.settle()
    if plan.plain:
        return carry.back(plan.call(*moved, **named), card)
    if plan.generator is not None:
        _draw_from_card(plan, moved, named, card)
    if plan.out:
        return _into(plan, moved, named, kwargs)
    if plan.inplace:
        return _in_place(plan, args[0], moved, named)
    return carry.back(plan.call(*moved, **named), card)


def _view(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return a view of a GPU's tensor: the CPU's kernels for views touch no memory, so no relabelling is needed."""
    card = args[0].get_device()
    if card >= SHOWN.count:
        raise missing(card)
    return plan.kernel(_CPU, *args, **kwargs)


def _draw_from_card(plan: Plan, moved: list[Any], named: dict[str, Any], card: int) -> None:
    """Make a call draw from the GPU's own generator, or from the given one for that GPU."""
    name = plan.generator
    assert name is not None
    for at, value in enumerate(moved):
        if isinstance(value, torch._C.Generator):
            moved[at] = generator_for(value, card)
            return
    named[name] = generator_for(named.get(name), card)


def _in_place(plan: Plan, target: Any, moved: list[Any], named: dict[str, Any]) -> Any:
    try:
        plan.call(*moved, **named)
    except RuntimeError as error:
        if not _wants_room(error):
            raise
        own = _clone(moved[0])
        plan.call(own, *moved[1:], **named)
        _write(target, own)
    return target


def _into(plan: Plan, moved: list[Any], named: dict[str, Any], kwargs: dict[str, Any]) -> Any:
    """Write results to ``out=``; memory that the CPU's kernel cannot enlarge is replaced by memory that it can."""
    if any(0 in each.shape for name in plan.out for each in _listed(named.get(name))):
        return _into_new(plan, moved, named, kwargs)
    try:
        plan.call(*moved, **named)
    except RuntimeError as error:
        if not _wants_room(error):
            raise
        return _into_new(plan, moved, named, kwargs)
    for name in plan.out:
        for target, seen in zip(_listed(kwargs.get(name)), _listed(named.get(name)), strict=True):
            if target.shape != seen.shape:  # it became smaller, within the existing memory
                _resize(target, seen.shape)
            if seen.is_conj() and not target.is_conj():  # linalg.lu_solve leaves a pending conjugation in its result
                _copy(to_host(target), _clone(seen))
    return _given(plan, kwargs)


def _into_new(plan: Plan, moved: list[Any], named: dict[str, Any], kwargs: dict[str, Any]) -> Any:
    fresh = dict(named)
    for name in plan.out:
        out = named.get(name)
        if out is not None:
            made = [_empty((0,), dtype=each.dtype, device="cpu") for each in _listed(out)]
            fresh[name] = made if isinstance(out, list) else made[0]
    plan.call(*moved, **fresh)
    for name in plan.out:
        for target, source in zip(_listed(kwargs.get(name)), _listed(fresh.get(name)), strict=True):
            _write(target, source)
    return _given(plan, kwargs)


def _write(target: Any, source: Any) -> None:
    """Give a GPU's tensor the values and the shape of a host tensor."""
    if target.shape != source.shape:
        _resize(target, source.shape)
    _copy(to_host(target), source)


def _given(plan: Plan, kwargs: dict[str, Any]) -> Any:
    """Return the ``out=`` arguments, as an operator with ``out=`` does."""
    outs = [kwargs.get(name) for name in plan.out]
    return outs[0] if len(outs) == 1 else tuple(outs)


def _listed(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]


def _wants_room(error: RuntimeError) -> bool:
    """Return True if a CPU kernel failed to enlarge memory that came through DLPack."""
    return "not resizable" in str(error)
