"""Collective calls that NCCL makes and gloo does not: lists of tensors of unequal sizes, and two reductions.

Gloo makes another call instead, and a step on the host follows it. The two reductions are averages of integers, which
NCCL rounds towards zero, and sums of tensors that NCCL multiplies by a factor first (``PREMUL_SUM``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import distributed

from devshim.simulation.patching import Patches

__all__ = ["install", "make_caller"]

_CUDA = torch._C.DispatchKey.CUDA
_SUM, _AVG, _PREMUL_SUM = 0, 1, 8
_SPARSE = "allreduce_sparse is only available in the NCCL experimental branch."


class _Local(threading.local):
    """The factor of the call that this thread makes: the dispatcher passes on only the kind of reduction."""

    factor: Any = None


_LOCAL = _Local()


def make_caller(op: Any) -> Callable[[tuple[Any, ...]], Any]:
    """Return a function that makes a collective call for NCCL, with tensors on the host."""
    special = _SPECIAL.get(op._schema.name)
    position = next((n for n, each in enumerate(op._schema.arguments) if each.name == "reduce_op"), None)

    def call(args: tuple[Any, ...]) -> Any:
        result = None if special is None else special(args)
        if result is None and position is not None:
            result = _reduce(op, args, position)
        return op._op_dk(_CUDA, *args) if result is None else result

    return call


# ---------------------------------------------------------------------- lists of unequal sizes
def _all_to_all(args: tuple[Any, ...]) -> Any:
    """Make the call for lists of any sizes: whether they are equal may differ between ranks."""
    received, sent, group, *rest = args
    return received, _exchange(sent, received, group, rest, lambda parts: _copy_all(parts, received), received)


def _all_gather(args: tuple[Any, ...]) -> Any:
    (received, *_), (own, *_), group, *rest = args
    if _are_equal(received):
        return None
    _require_same_count(own, received[distributed.ProcessGroup.unbox(group).rank()], "_broadcast_oop")
    sent = [own] * len(received)
    return args[0], _exchange(sent, received, group, rest, lambda parts: _copy_all(parts, received), args[0])


def _reduce_scatter(args: tuple[Any, ...]) -> Any:
    (result, *_), (sent, *_), group, reduce_op, *rest = args
    if _are_equal(sent) and not _is_own_average(reduce_op, result):
        return None
    _require_same_count(sent[distributed.ProcessGroup.unbox(group).rank()], result, "_reduce_oop")
    return args[0], _reduce_parts(sent, result, group, reduce_op, rest, args[0])


def _reduce_scatter_base(args: tuple[Any, ...]) -> Any:
    result, whole, group, reduce_op, *rest = args
    if not _is_own_average(reduce_op, result):
        return None
    return result, _reduce_parts(list(whole.split(result.numel())), result, group, reduce_op, rest, [result])


def _reduce_scatter_coalesced(args: tuple[Any, ...]) -> Any:
    """Make several calls; the work of gloo's own has no future, to which `_reduce` would add a step."""
    results, wholes, group, reduce_op, *rest = args
    if not any(_is_own_average(reduce_op, each) for each in results):
        return None
    works = [
        _reduce_parts(list(whole.split(result.numel())), result, group, reduce_op, rest, [result])
        for result, whole in zip(results, wholes, strict=True)
    ]
    together = torch.futures.collect_all([distributed.Work.unbox(each).get_future() for each in works])
    return _after(together, lambda: None, results)


def _reduce_parts(sent: list[Any], result: Any, group: Any, reduce_op: Any, rest: list[Any], results: Any) -> Any:
    """Send a tensor to each rank, and reduce here what all ranks sent."""
    kind = reduce_op.op()
    if kind == _PREMUL_SUM:
        sent, kind = _scale(sent), _SUM

    def finish(parts: list[Any]) -> None:
        result.copy_(_REDUCED[kind](torch.stack(parts)).view(result.shape))

    return _exchange(sent, [result] * len(sent), group, rest, finish, results)


def _exchange(
    sent: list[Any], like: list[Any], group: Any, rest: list[Any], finish: Callable[[list[Any]], None], results: Any
) -> Any:
    """Send a tensor to each rank, and receive one of each.

    Args:
        sent: The tensors for the ranks.
        like: Tensors of the sizes that the ranks send.
        group: The ranks.
        rest: Further arguments of the call.
        finish: Called with what was received.
        results: The results of the call.
    """
    counts = [each.numel() for each in like]
    target = like[0].new_empty(sum(counts))
    source = torch.cat([each.reshape(-1) for each in sent])
    sizes = counts, [each.numel() for each in sent]
    work = torch.ops.c10d.alltoall_base_.default._op_dk(_CUDA, target, source, group, *sizes, *rest)
    return _then(work, lambda: finish(list(target.split(counts))), results)


def _copy_all(parts: list[Any], targets: list[Any]) -> None:
    for part, target in zip(parts, targets, strict=True):
        target.copy_(part.view(target.shape))


def _are_equal(tensors: list[Any]) -> bool:
    return all(each.shape == tensors[0].shape for each in tensors)


def _require_same_count(source: Any, target: Any, name: str) -> None:
    if source.numel() != target.numel():
        msg = f"Tensor input and output of {name} must have the same number of elements "
        raise ValueError(msg)


_SPECIAL: Mapping[str, Callable[[tuple[Any, ...]], Any]] = {
    "c10d::alltoall_": _all_to_all,
    "c10d::allgather_": _all_gather,
    "c10d::reduce_scatter_": _reduce_scatter,
    "c10d::_reduce_scatter_base_": _reduce_scatter_base,
    "c10d::reduce_scatter_tensor_coalesced_": _reduce_scatter_coalesced,
}


# ---------------------------------------------------------------------- reductions
def _average(parts: Any) -> Any:
    total = parts.sum(0, dtype=parts.dtype)
    return total.div_(len(parts), rounding_mode=None if parts.is_floating_point() else "trunc")


_REDUCED: Mapping[int, Callable[[Any], Any]] = {
    _SUM: lambda parts: parts.any(0) if parts.dtype is torch.bool else parts.sum(0, dtype=parts.dtype),
    _AVG: _average,
    2: lambda parts: parts.prod(0, dtype=parts.dtype),
    3: lambda parts: parts.amin(0),
    4: lambda parts: parts.amax(0),
}
"""Number of a reduction in ``c10d::ReduceOp`` -> the function of the tensors of all ranks."""


def _reduce(op: Any, args: tuple[Any, ...], position: int) -> Any:
    """Make a call with a reduction that gloo lacks, or return None."""
    kind, name = args[position].op(), op._schema.name
    tensors = args[0] if isinstance(args[0], list) else [args[0]]
    is_average = _is_own_average(args[position], tensors[0])
    if not is_average and kind != _PREMUL_SUM:
        return None
    changed, group = list(args), distributed.ProcessGroup.unbox(args[position - 1])
    is_root = name != "c10d::reduce_" or group.rank() == args[position + 1]
    source = 1 if "reduce_scatter" in name else 0
    if kind == _PREMUL_SUM and (source or not is_root):
        changed[source] = _scale(changed[source])
    elif kind == _PREMUL_SUM:
        for each in tensors:
            each.mul_(_LOCAL.factor)
    changed[position] = torch.classes.c10d.ReduceOp()  # a sum
    result = op._op_dk(_CUDA, *changed)
    if not is_average or not is_root:
        return result

    def divide() -> None:
        for each in tensors:
            each.div_(group.size(), rounding_mode="trunc")

    if isinstance(result, tuple):
        return (*result[:-1], _then(result[-1], divide, tensors))
    return _then(result, divide, tensors)


def _is_own_average(reduce_op: Any, tensor: Any) -> bool:
    """Return True for an average of integers, which gloo refuses."""
    return reduce_op.op() == _AVG and not (tensor.is_floating_point() or tensor.is_complex())


def _scale(value: Any) -> Any:
    """Return the product of each tensor and the factor of the call."""
    if isinstance(value, list):
        return [_scale(each) for each in value]
    return value * _LOCAL.factor


def _then(work: Any, finish: Callable[[], None], results: Any) -> Any:
    """Return the work of a call that ends after a step on the host."""
    return _after(distributed.Work.unbox(work).get_future(), finish, results)


def _after(future: Any, finish: Callable[[], None], results: Any) -> Any:
    """Return the work of a call that ends after a future and a step on the host."""

    def end(done: Any) -> Any:
        done.value()  # raises the error of gloo
        finish()
        return results

    return torch._C._distributed_c10d._create_work_from_future(future.then(end)).boxed()


# ---------------------------------------------------------------------- the factor of a call
_REDUCING = (
    *("allreduce", "allreduce_coalesced", "reduce", "reduce_scatter", "_reduce_scatter_base"),
    *("reduce_scatter_single", "reduce_scatter_tensor_coalesced", "reduce_scatter_single_coalesced"),
)
"""Methods of a group; a version of PyTorch may lack some."""


def _with_factor(real: Callable[..., Any], uses_nccl: Callable[[Any], bool]) -> Callable[..., Any]:
    """Return a replacement for a method of a group that reduces."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not uses_nccl(self):
            return real(self, *args, **kwargs)
        values = (*args, *kwargs.values())
        if real.__name__ == "allreduce" and _is_sparse(values[0]):
            raise RuntimeError(_SPARSE)
        found = [getattr(each, "reduceOp", each) for each in values]
        factor = next((_factor_of(each) for each in found if isinstance(each, distributed.ReduceOp)), None)
        before, _LOCAL.factor = _LOCAL.factor, factor
        try:
            return real(self, *args, **kwargs)
        finally:
            _LOCAL.factor = before

    return method


def _is_sparse(tensors: Any) -> bool:
    first = tensors if isinstance(tensors, torch.Tensor) else next(iter(tensors), None)
    return first is not None and first.is_sparse


def _factor_of(reduce_op: Any) -> Any:
    """Return the factor of a reduction, or None; a tensor's may be on a GPU."""
    factor = reduce_op.__getstate__()[1] if reduce_op == distributed.ReduceOp.PREMUL_SUM else None
    return factor.item() if isinstance(factor, torch.Tensor) else factor


def install(patches: Patches, group: Any, uses_nccl: Callable[[Any], bool]) -> None:
    """Install the replacements in the class of process groups."""
    for name in [each for each in _REDUCING if hasattr(group, each)]:
        patches.replace(group, name, _with_factor(getattr(group, name), uses_nccl))
