"""Copies of large tensors between the host and a CUDA card: in pieces, through pinned memory.

Small tensors are copied in parcels (`coalesce`). Requirements of this module:

* A large tensor in pageable memory is copied in pieces through three pinned buffers: some are filled or emptied
  while another is sent. CUDA itself copies such memory through one buffer, at a seventh of the rate (measured on an
  H100: 7.5 GB/s, against 53 for pinned memory; two buffers reach 44 GB/s, three reach 53, and four do not improve
      that).
* A tensor that its bytes, shape and strides do not fully describe (other layouts, subclasses, transforms) is copied by
  PyTorch.
* After a copy to a card returns, the source may be written to or freed, and nothing reads it later. A copy from a card
  is returned only when it is complete. A copy between cards waits for nothing, so pieces would not make it faster.

The buffers are PyTorch's pinned memory. PyTorch reuses that memory only after the copies that it knows of have ended:
copies made by ``copy_(..., non_blocking=True)``, on the current stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import forward_ad

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devshim.contract.backend import Tensor

LARGE_BYTES = 1 << 26
"""Number of bytes from which copying in pieces is worth the buffers."""
PIECE_BYTES = 1 << 24
BUFFERS = 3

PLAIN_DTYPES = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
PLAIN_DTYPES |= {torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128}
"""The dtypes that PyTorch's operators on lists of tensors support on every card; others are copied singly."""


def is_plain(x: Tensor) -> bool:
    """Return True if a tensor is a plain block of memory, fully described by its bytes, shape and strides.

    It may require a gradient.
    """
    return (
        type(x) in (torch.Tensor, torch.nn.Parameter)
        and x.layout is torch.strided
        and x.dtype in PLAIN_DTYPES
        and not x.is_nested
        and not (x.is_conj() or x.is_neg() or x._is_zerotensor() or x.is_inference())
        and torch._C._functorch.maybe_get_level(x) == -1  # not a wrapper of torch.func, which tracks operations
        and not is_tracked()
    )


def has_plain_strides(x: Tensor) -> bool:
    """Return True if every axis of length 1 has the stride that a new tensor would have; copies keep any other."""
    expected = 1
    for length, stride in zip(reversed(x.shape), reversed(x.stride()), strict=True):
        if stride != expected:
            return False
        expected *= length
    return True


def may_apply(target: Any) -> bool:
    """Return True if a copy to a device may go between the host and a CUDA card."""
    possible = target.type == "cuda" or (target.type == "cpu" and torch.cuda.is_initialized())
    return bool(possible and not _is_tracing())


def _is_tracing() -> bool:
    """Return True if ``torch.jit.trace`` is recording; it must see one copy, and warns of decisions about sizes."""
    return torch._C._get_tracing_state() is not None


def is_between_host_and_card(source: Any, target: Any) -> bool:
    """Return True if a copy between these devices goes from the host to a CUDA card, or from one to the host."""
    return bool({source.type, target.type} == {"cpu", "cuda"})


def is_tracked() -> bool:
    """Return True if a transform of ``torch.func``, or forward differentiation, may track operations on tensors."""
    return forward_ad._current_level >= 0 or torch._C._functorch.peek_interpreter_stack() is not None


def pinned(count: int, dtype: Any, card: Any) -> Tensor:
    """Return a host buffer for copies to or from a card, pinned if possible; an unpinned one is slower but works."""
    if card.type == "cuda":
        try:
            with torch.cuda.device(card):  # pinning creates a context on the current card if it has not got one
                return torch.empty(count, dtype=dtype, device="cpu", pin_memory=True)
        except RuntimeError:  # the driver cannot pin more memory: a limit of the machine, or too little is free
            pass
    return torch.empty(count, dtype=dtype, device="cpu")


def wait(card: Any) -> None:
    """Wait for the work on the card's current stream."""
    if card.type == "cuda":
        torch.cuda.current_stream(card).synchronize()


def copy_to(x: Tensor, target: Any, non_blocking: bool = False) -> Tensor:
    """Return a copy on another device, in pieces where that is faster."""
    if not is_large(x, target):
        return x.to(target, None, non_blocking, True)
    if x.requires_grad and torch.is_grad_enabled():
        result: Tensor = _CopyInPieces.apply(x, target, non_blocking)
        return result
    x = x.detach()
    return send_in_pieces(x, target, non_blocking) if x.is_cpu else fetch_in_pieces(x)


class _CopyInPieces(torch.autograd.Function):  # type: ignore[misc]
    """A copy in pieces whose gradient also comes back in pieces."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, target: Any, non_blocking: bool) -> Tensor:
        ctx.source = x.device
        return copy_to(x, target, non_blocking)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return copy_to(gradient, ctx.source), None, None


def _pieces(x: Tensor, result: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield a tensor's pieces, each with its part of the result, which is one block of memory.

    A transposed tensor is cut in the order of its memory; a tensor with gaps is cut along its axes of longest stride.
    """
    order = sorted(range(x.ndim), key=result.stride, reverse=True)
    source, target = x.permute(order), result.permute(order)
    if source.is_contiguous():
        source, target = source.reshape(-1), target.reshape(-1)
    rows = max(PIECE_BYTES // x.element_size() // source[0].numel(), 1)
    for start in range(0, len(source), rows):
        yield source[start : start + rows], target[start : start + rows]


def send_in_pieces(x: Tensor, target: Any, non_blocking: bool = False) -> Tensor:
    """Return a copy of a large host tensor on a card, sent in pieces through pinned buffers."""
    result = torch.empty_like(x, device=target)
    buffers: list[Any] = [None] * BUFFERS
    sent: list[Any] = [None] * BUFFERS
    for i, (piece, part) in enumerate(_pieces(x, result)):
        turn = i % BUFFERS
        if sent[turn] is not None:
            sent[turn].synchronize()  # the buffer is still being read
        if buffers[turn] is None:
            buffers[turn] = pinned(piece.numel(), x.dtype, target)
        buffer = buffers[turn][: piece.numel()].view(piece.shape)
        buffer.copy_(piece)
        part.copy_(buffer, non_blocking=True)
        sent[turn] = _event(target)
    if not non_blocking:
        wait(target)
    return result


def fetch_in_pieces(x: Tensor) -> Tensor:
    """Return a copy of a large tensor of a card on the host, fetched in pieces through pinned buffers."""
    result = torch.empty_like(x, device="cpu")
    buffers: list[Any] = [None] * BUFFERS
    in_flight: list[tuple[Any, Tensor, Tensor]] = []  # the event of its arrival, the buffer, and the target
    for i, (piece, part) in enumerate(_pieces(x, result)):
        turn = i % BUFFERS
        if buffers[turn] is None:
            buffers[turn] = pinned(piece.numel(), x.dtype, x.device)
        buffer = buffers[turn][: piece.numel()].view(piece.shape)
        buffer.copy_(piece, non_blocking=True)
        in_flight.append((_event(x.device), buffer, part))
        if len(in_flight) == BUFFERS:
            _drain(*in_flight.pop(0))
    for each in in_flight:
        _drain(*each)
    return result


def _event(card: Any) -> Any:
    """Return an event for all the work on the card's current stream; None if the device is not a CUDA card."""
    if card.type != "cuda":
        return None
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(card))
    return event


def _drain(arrived: Any, buffer: Tensor, target: Tensor) -> None:
    """Wait until a piece has arrived in its buffer, and copy it to the result."""
    if arrived is not None:
        arrived.synchronize()
    target.copy_(buffer)


def is_large(x: Tensor, target: Any) -> bool:
    """Return True if a tensor is copied in pieces: it is large and plain, can be cut, and is not pinned already."""
    if not is_between_host_and_card(x.device, target) or _is_tracing() or x.numel() * x.element_size() < LARGE_BYTES:
        return False
    return is_plain(x) and _can_be_divided(x) and not (x.is_cpu and x.is_pinned())


def _can_be_divided(x: Tensor) -> bool:
    """Return True if a tensor is one block of memory, or a row along its axis of longest stride fits in a piece."""
    order = sorted(range(x.ndim), key=x.stride, reverse=True)
    row = x.numel() // x.shape[order[0]] * x.element_size()
    return row <= PIECE_BYTES or bool(x.permute(order).is_contiguous())
