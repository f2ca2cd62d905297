"""Calls of operators that write to their arguments.

The CPU's kernel gets a GPU's memory through DLPack, and cannot enlarge it. Where a kernel wants to, it computes into
memory that it can enlarge, and the values and the shape are copied to the GPU's tensor. That memory is a copy of the
GPU's tensor: the host tensor of the call that failed has the new shape already, over memory that is too small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from devshim_backends._torch.simulation.internals.relabel import to_host, to_host_keeping_bits

if TYPE_CHECKING:
    from devshim_backends._torch.simulation.internals.schemas import OperatorPlan

__all__ = ["call_and_grow", "call_in_place", "call_into_out"]

_empty = torch.ops.aten.empty.memory_format
_copy = torch.ops.aten.copy_.default
_clone = torch.ops.aten.clone.default
_resize = torch.ops.aten.resize_.default


def call_in_place(plan: OperatorPlan, target: Any, converted: list[Any], keywords: dict[str, Any]) -> Any:
    """Change the target; memory that the CPU's kernel cannot enlarge is replaced by memory that it can."""
    try:
        plan.call(*converted, **keywords)
    except RuntimeError as error:
        if not _is_not_resizable(error):
            raise
        resizable = _clone(to_host_keeping_bits(target))
        plan.call(resizable, *converted[1:], **keywords)
        _write(target, resizable)
    return target


def call_and_grow(plan: OperatorPlan, args: tuple[Any, ...], converted: list[Any], keywords: dict[str, Any]) -> Any:
    """Call an operator that returns new results and may also write to its arguments, as an observer of ranges does."""
    try:
        return plan.call(*converted, **keywords)
    except RuntimeError as error:
        if not plan.written_positions or not _is_not_resizable(error):
            raise
    resizable = {position: _clone(to_host_keeping_bits(args[position])) for position in plan.written_positions}
    result = plan.call(*(resizable.get(position, value) for position, value in enumerate(converted)), **keywords)
    for position, written in resizable.items():
        _write(args[position], written)
    return result


def call_into_out(plan: OperatorPlan, converted: list[Any], keywords: dict[str, Any], kwargs: dict[str, Any]) -> Any:
    """Write results to ``out=``; memory that the CPU's kernel cannot enlarge is replaced by memory that it can."""
    if any(0 in each.shape for name in plan.out_names for each in _as_list(keywords.get(name))):
        return _replace_out(plan, converted, keywords, kwargs)
    try:
        plan.call(*converted, **keywords)
    except RuntimeError as error:
        if not _is_not_resizable(error):
            raise
        return _replace_out(plan, converted, keywords, kwargs)
    for name in plan.out_names:
        for target, written in zip(_as_list(kwargs.get(name)), _as_list(keywords.get(name)), strict=True):
            if target.shape != written.shape:  # it became smaller, within the existing memory
                _resize(target, written.shape)
            if written.is_conj() and not target.is_conj():  # linalg.lu_solve leaves a pending conjugation in its result
                _copy(to_host(target), _clone(written))
    return _out_arguments(plan, kwargs)


def _replace_out(plan: OperatorPlan, converted: list[Any], keywords: dict[str, Any], kwargs: dict[str, Any]) -> Any:
    """Compute into new host tensors, and copy their values and shapes to ``out=``."""
    fresh = dict(keywords)
    for name in plan.out_names:
        out = keywords.get(name)
        if out is not None:
            empty = [_empty((0,), dtype=each.dtype, device="cpu") for each in _as_list(out)]
            fresh[name] = empty if isinstance(out, list) else empty[0]
    plan.call(*converted, **fresh)
    for name in plan.out_names:
        for target, source in zip(_as_list(kwargs.get(name)), _as_list(fresh.get(name)), strict=True):
            _write(target, source)
    return _out_arguments(plan, kwargs)


def _write(target: Any, source: Any) -> None:
    """Give a GPU's tensor the values and the shape of a host tensor."""
    if target.shape != source.shape:
        _resize(target, source.shape)
    _copy(to_host(target), source)


def _out_arguments(plan: OperatorPlan, kwargs: dict[str, Any]) -> Any:
    """Return the ``out=`` arguments, as an operator with ``out=`` does."""
    outs = [kwargs.get(name) for name in plan.out_names]
    return outs[0] if len(outs) == 1 else tuple(outs)


def _as_list(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]


def _is_not_resizable(error: RuntimeError) -> bool:
    """Return True if a CPU kernel failed to enlarge memory that came through DLPack."""
    return "not resizable" in str(error)
