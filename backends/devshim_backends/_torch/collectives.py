"""Collective operations on PyTorch tensors: split, join, stack, and combine element by element.

Requirements of this module:

* NCCL (RCCL) computes sums over several CUDA or ROCm cards. It promises nothing about NaN in a maximum, so devshim's
  own method computes that, and everything on other devices, including simulated GPUs.
* Each NCCL call has a fixed cost: small tensors of one dtype are joined for one call, in parcels of a bounded size.
* PyTorch cannot add or compare unsigned integers wider than a byte, or 8-bit floats (2.13). Those are combined in
  a wider dtype and cast back.
* A thread's state (gradients, inference, autocast) can be captured and entered in another thread.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, nullcontext
from ctypes import string_at
from functools import reduce
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from devshim.devices.dtypes import widest
from devshim.errors import UnsupportedError
from devshim_backends._torch.gradients import RECORDING, elements_overlap
from devshim_backends._torch.tensors import TorchTensors
from devshim_backends._torch.transfers.internals import coalesce, quantized_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from devshim.contract.backend import Tensor

_WIDER_DTYPES: dict[Any, Any] = {torch.uint16: torch.int32, torch.uint32: torch.int64}
_WIDER_DTYPES.update({getattr(torch, name): torch.float32 for name in dir(torch) if name.startswith("float8_")})
_NCCL_DTYPES = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
_NCCL_DTYPES |= {torch.int8, torch.uint8, torch.int32, torch.int64}
_SAME_BITS_IN_NUMPY = {"float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8"}
"""Dtypes that PyTorch and NumPy store as the same bits; complex ones may have a pending conjugation."""
_PAD = "pad them first: x.to_padded_tensor(0.0)"
_DENSE: tuple[Any, ...] = (torch.strided,)
_DENSE_OR_COO = (torch.strided, torch.sparse_coo)
_PLAIN_TYPES = (torch.Tensor, torch.nn.Parameter)
_SUM = (torch.add, torch.Tensor.add_)
_OPS = {"sum": _SUM, "mean": _SUM, "max": (torch.maximum,) * 2, "min": (torch.minimum,) * 2}
"""By operation: the operator for the first two tensors, whose result is new, and the one that adds each further one."""


class TorchCollectives(TorchTensors):
    """Mixin for collective operations."""

    def narrow(self, x: Tensor, axis: int, start: int, stop: int) -> Tensor:
        _require_layout((x,), "split", _DENSE)
        if x.is_quantized:
            return quantized_parts.narrow(x, axis, start, stop)
        return x.narrow(axis, start, stop - start)

    def concatenate(self, xs: Sequence[Tensor], axis: int) -> Tensor:
        if any(x.is_nested for x in xs):
            msg = "PyTorch cannot join nested tensors"
            raise UnsupportedError(msg, _PAD)
        _require_layout(xs, "join", _DENSE_OR_COO)
        if any(map(quantized_parts.is_per_channel, xs)):
            return quantized_parts.join(xs, axis)
        return torch.cat(list(xs), dim=axis)

    def stack_tensors(self, xs: Sequence[Tensor]) -> Tensor:
        return torch.stack(list(xs))

    def combine(self, xs: Sequence[Tensor], op: Literal["sum", "mean", "max", "min"]) -> Tensor:
        _require_layout(xs, f"take the {op} of", (*(_DENSE_OR_COO if op in ("sum", "mean") else _DENSE), torch.jagged))
        dtype = xs[0].dtype
        with _no_grad_scope(xs):
            if dtype is torch.uint64:
                return _reduce_uint64(xs, op)
            wider = _WIDER_DTYPES.get(dtype)
            return (
                _reduce_tensors(xs, op) if wider is None else _reduce_tensors([x.to(wider) for x in xs], op).to(dtype)
            )

    def weighted_sum(self, xs: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
        dtype = xs[0].dtype
        if dtype is torch.uint64:
            return _reduce_uint64(xs, "sum")  # integers are summed without weights
        wider = _WIDER_DTYPES.get(dtype)
        if wider is None:
            return super().weighted_sum(xs, weights)
        return super().weighted_sum([x.to(wider) for x in xs], weights).to(dtype)

    def detached_copy(self, x: Tensor) -> Tensor:
        self._require_dense(x, "NumPy")
        return x.detach().clone()

    def scalar_reader(self, x: Tensor) -> tuple[Callable[[Tensor], Any], np.dtype] | None:
        kind, dtype, device, strided, size = type(x), x.dtype, x.device, torch.strided, x.dtype.itemsize
        name = self.dtype_name(x)
        if kind not in _PLAIN_TYPES or x.layout is not strided:
            return None
        # A simulated GPU finishes before a call returns, and its memory is the host's: its bytes can be read.
        as_bytes = not x.is_cpu and name in _SAME_BITS_IN_NUMPY

        def read(x: Tensor) -> Any:
            same = type(x) is kind and x.dtype is dtype and x.numel() == 1 and x.device == device
            if not same or x.layout is not strided:
                return None
            return string_at(x.data_ptr(), size) if as_bytes else x.item()

        return read, np.dtype(name if as_bytes else widest([name]))

    def scalar_copier(self, x: Tensor) -> Callable[[Tensor], Any] | None:
        kind, dtype, device, strided = type(x), x.dtype, x.device, torch.strided
        if kind not in _PLAIN_TYPES or x.layout is not strided:
            return None

        def copy(x: Tensor) -> Tensor | None:
            same = type(x) is kind and x.dtype is dtype and x.numel() == 1 and x.device == device
            return x.detach().clone() if same and x.layout is strided and not x.is_nested else None

        return copy

    def stack_scalars(self, xs: Sequence[Tensor]) -> Tensor:
        if xs[0].is_cpu is not True:  # the scalars may have been computed on any stream, in any thread
            self.synchronize(self.device_of(xs[0]))
        with torch.no_grad():
            names = {self.dtype_name(x) for x in xs}
            name = widest(names)
            if names == {name} and len({x.shape for x in xs}) == 1:
                return torch.stack(tuple(xs)).reshape(-1)  # two operators for any number of scalars
            dtype = self.dtype(name)
            if dtype is torch.float64 and xs[0].is_mps:  # MPS has no float64
                dtype = torch.float32
            return torch.cat([x.reshape(1).to(dtype) for x in xs])

    def assign(self, x: Tensor, value: Tensor) -> None:
        with _no_grad_scope((x, value)):
            x.copy_(value)

    def all_reduce(self, xs: Sequence[Tensor], op: Literal["sum", "mean", "max", "min"]) -> Sequence[Tensor] | None:
        if op not in ("sum", "mean") or not _nccl_supports(xs):
            return None
        sources = [x.detach().contiguous() for x in xs]
        results = [torch.empty_like(x) for x in sources]
        torch.cuda.nccl.all_reduce(sources, results)
        return [each.div_(len(xs)) for each in results] if op == "mean" else results

    def all_reduce_many(
        self, groups: Sequence[Sequence[Tensor]], op: Literal["sum", "mean", "max", "min"]
    ) -> Sequence[Sequence[Tensor] | None]:
        reduced: list[Sequence[Tensor] | None] = [None] * len(groups)
        for members in _group_for_nccl(groups) if op in ("sum", "mean") else ():
            ranks = zip(*(groups[i] for i in members), strict=True)
            joined = [torch.cat([x.detach().reshape(-1) for x in xs]) for xs in ranks]
            torch.cuda.nccl.all_reduce(joined)
            sizes = [groups[i][0].numel() for i in members]
            parts = [(each.div_(len(joined)) if op == "mean" else each).split(sizes) for each in joined]
            for i, results in zip(members, zip(*parts, strict=True), strict=True):
                reduced[i] = [result.view(groups[i][0].shape) for result in results]
        return [self.all_reduce(xs, op) if each is None else each for xs, each in zip(groups, reduced, strict=True)]

    def supports_inplace(self, x: Tensor) -> bool:
        return torch.is_inference_mode_enabled() or not x.is_inference()

    def has_overlap(self, x: Tensor) -> bool:
        return elements_overlap(x)

    def capture_thread_state(self) -> Callable[[], AbstractContextManager[object]]:
        gradients, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        accelerator = torch.accelerator.current_accelerator()
        kinds = ["cpu"] if accelerator is None else ["cpu", accelerator.type]
        casts = {kind: torch.get_autocast_dtype(kind) for kind in kinds if torch.is_autocast_enabled(kind)}
        recording = list(RECORDING.open)
        return lambda: _enter_thread_state(gradients, inference, casts, recording)


def _require_layout(xs: Sequence[Tensor], verb: str, layouts: Sequence[Any]) -> None:
    """Refuse a tensor of another layout, for which PyTorch lacks the operator or cannot write the result."""
    for x in xs:
        if x.layout not in layouts:
            msg = f"PyTorch cannot {verb} a tensor of layout {str(x.layout).removeprefix('torch.')}"
            raise UnsupportedError(msg, _PAD if x.is_nested else "call x.to_dense() first")


def _no_grad_scope(xs: Sequence[Tensor]) -> AbstractContextManager[object]:
    """Return a scope in which operators on these tensors record no graph; without gradients, none would."""
    for x in xs:
        if x.requires_grad:
            scope: AbstractContextManager[object] = torch.no_grad()
            return scope
    return nullcontext()


def _group_for_nccl(groups: Sequence[Sequence[Tensor]]) -> list[list[int]]:
    """Return the numbers of the leaves that NCCL sums in one call: small, of one dtype, a bounded number of bytes."""
    calls: dict[tuple[Any, int], list[int]] = {}
    sizes: dict[Any, int] = {}
    for i, xs in enumerate(groups):
        if _nccl_supports(xs) and xs[0].nbytes <= coalesce.SMALL_BYTES:
            dtype = xs[0].dtype
            sizes[dtype] = sizes.get(dtype, 0) + xs[0].nbytes
            calls.setdefault((dtype, sizes[dtype] // coalesce.PARCEL_BYTES), []).append(i)
    return [members for members in calls.values() if len(members) > 1]


def _reduce_tensors(xs: Sequence[Tensor], op: str) -> Tensor:
    """Return the reduction of tensors in their own dtype, in the given order."""
    first, further = _OPS[op]
    result = reduce(further, xs[2:], first(xs[0], xs[1]) if len(xs) > 1 else xs[0].clone())
    return result.div_(len(xs)) if op == "mean" else result


def _reduce_uint64(xs: Sequence[Tensor], op: str) -> Tensor:
    """Return the reduction of uint64 tensors, computed as int64: sums are equal, and shifting keeps the order."""
    shift = 0 if op == "sum" else -(2**63)
    signed = [x.view(torch.int64) + shift for x in xs]
    return (_reduce_tensors(signed, op) - shift).view(torch.uint64)


def _nccl_supports(xs: Sequence[Tensor]) -> bool:
    """Return True if NCCL can reduce the tensors: they are plain, and each is on a different card."""
    if not hasattr(torch._C, "_nccl_all_reduce") or not all(x.is_cuda and x.dtype in _NCCL_DTYPES for x in xs):
        return False
    dense = all(x.layout is torch.strided and not x.is_nested for x in xs)
    return dense and len({x.device for x in xs}) == len(xs)


@contextmanager
def _enter_thread_state(
    gradients: bool, inference: bool, casts: dict[str, Any], recording: list[None]
) -> Iterator[None]:
    """Enter the captured state of one thread in another thread."""
    before, RECORDING.open = RECORDING.open, list(recording)  # its own: the other threads add to theirs
    with ExitStack() as stack:
        stack.callback(setattr, RECORDING, "open", before)
        stack.enter_context(torch.inference_mode() if inference else torch.set_grad_enabled(gradients))
        for kind, dtype in casts.items():
            stack.enter_context(torch.autocast(kind, dtype=dtype))
        yield
