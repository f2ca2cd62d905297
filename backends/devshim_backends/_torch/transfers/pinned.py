"""Large tensors on their way between the host and a CUDA card: in pieces, through pinned memory; small ones: `parcels`.

Requirements this module answers:

* A large tensor in pageable memory goes in pieces through two pinned buffers, one filled or emptied while the other is
  sent: CUDA natively copies such memory through one, at half the rate.
* What bytes, shape and strides do not say in full (other layouts, subclasses, transforms) goes as PyTorch sends it.
* To a card the source may be written to, or freed, when the call returns, and nothing reads it later; from a card
  nothing is shown before it has arrived.  Between cards nothing waits, so there is nothing to win.

Buffers are PyTorch's pinned memory, which it hands out again only when the copies that it knows of have ended: those
made by ``copy_(..., non_blocking=True)``, on whatever stream is the current one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import forward_ad

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devshim.contract.backend import Tensor

LARGE = 1 << 26
"""Bytes from which pieces are worth their buffers."""
PIECE = 1 << 24

PLAIN = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16}
PLAIN |= {torch.float32, torch.float64, torch.complex64, torch.complex128}
"""The dtypes that PyTorch's operators on lists of tensors know on every card; others go by themselves."""


def is_plain(x: Tensor) -> bool:
    """Return True if a tensor is a plain block of memory, so that its bytes, shape and strides are all there is to it.

    It may want a gradient.
    """
    return (
        type(x) in (torch.Tensor, torch.nn.Parameter)
        and x.layout is torch.strided
        and x.dtype in PLAIN
        and not x.is_nested
        and not (x.is_conj() or x.is_neg() or x._is_zerotensor() or x.is_inference())
        and torch._C._functorch.maybe_get_level(x) == -1  # of torch.func, which follows it
        and not is_followed()
    )


def has_plain_strides(x: Tensor) -> bool:
    """Whether an axis of length 1 has the stride that a new tensor would have; copies keep any other."""
    expected = 1
    for length, stride in zip(reversed(x.shape), reversed(x.stride()), strict=True):
        if stride != expected:
            return False
        expected *= length
    return True


def can_help(place: Any) -> bool:
    """Whether anything that goes to a device may be on its way between the host and a CUDA card."""
    possible = place.type == "cuda" or (place.type == "cpu" and torch.cuda.is_initialized())
    return bool(possible and not _is_traced())


def _is_traced() -> bool:
    """Whether ``torch.jit.trace`` writes down what is done, which is one copy, and warns of decisions about sizes."""
    return torch._C._get_tracing_state() is not None


def is_on_the_way(source: Any, place: Any) -> bool:
    """Return True if a copy between these devices goes from the host to a CUDA card, or from one to the host."""
    return bool({source.type, place.type} == {"cpu", "cuda"})


def is_followed() -> bool:
    """True if a transform of ``torch.func`` or forward differentiation may follow what is done with tensors."""
    return forward_ad._current_level >= 0 or torch._C._functorch.peek_interpreter_stack() is not None


def pinned(count: int, dtype: Any, card: Any) -> Tensor:
    """A buffer of the host's for copies to or from a card; one that cannot be pinned does it, too, but slower."""
    if card.type == "cuda":
        try:
            with torch.cuda.device(card):  # pinning makes a context on the current card where there is none yet
                return torch.empty(count, dtype=dtype, device="cpu", pin_memory=True)
        except RuntimeError:  # the driver pins no more: what the machine lets it, or what is free
            pass
    return torch.empty(count, dtype=dtype, device="cpu")


def wait(card: Any) -> None:
    """Wait for what was asked of a card on the stream that is its current one."""
    if card.type == "cuda":
        torch.cuda.current_stream(card).synchronize()


def carried(x: Tensor, place: Any, non_blocking: bool = False) -> Tensor:
    """Return a copy on another device, in pieces where that is faster."""
    if not is_large(x, place):
        return x.to(place, None, non_blocking, True)
    if x.requires_grad and torch.is_grad_enabled():
        made: Tensor = _Carried.apply(x, place, non_blocking)
        return made
    x = x.detach()
    return in_pieces(x, place, non_blocking) if x.is_cpu else out_in_pieces(x)


class _Carried(torch.autograd.Function):  # type: ignore[misc]
    """A copy in pieces, through which the gradient comes back in pieces."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, place: Any, non_blocking: bool) -> Tensor:
        ctx.source = x.device
        return carried(x, place, non_blocking)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return carried(gradient, ctx.source), None, None


def _pieces(x: Tensor, made: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield a tensor's pieces with the memory that each belongs in, which is one block.

    A transposed tensor is cut in the order of its memory, one with gaps by its longest steps.
    """
    order = sorted(range(x.ndim), key=made.stride, reverse=True)
    source, target = x.permute(order), made.permute(order)
    if source.is_contiguous():
        source, target = source.reshape(-1), target.reshape(-1)
    rows = max(PIECE // x.element_size() // source[0].numel(), 1)
    for start in range(0, len(source), rows):
        yield source[start : start + rows], target[start : start + rows]


def in_pieces(x: Tensor, place: Any, non_blocking: bool = False) -> Tensor:
    """Return a copy on a card of a large tensor of the host's, sent in pieces through two pinned buffers."""
    made = torch.empty_like(x, device=place)
    buffers: list[Any] = [None, None]
    sent: list[Any] = [None, None]
    for i, (piece, target) in enumerate(_pieces(x, made)):
        if sent[i % 2] is not None:
            sent[i % 2].synchronize()  # the buffer is being read still
        if buffers[i % 2] is None:
            buffers[i % 2] = pinned(piece.numel(), x.dtype, place)
        buffer = buffers[i % 2][: piece.numel()].view(piece.shape)
        buffer.copy_(piece)
        target.copy_(buffer, non_blocking=True)
        sent[i % 2] = _event(place)
    if not non_blocking:
        wait(place)
    return made


def out_in_pieces(x: Tensor) -> Tensor:
    """Return a copy on the host of a large tensor of a card's, fetched in pieces through two pinned buffers."""
    made = torch.empty_like(x, device="cpu")
    buffers: list[Any] = [None, None]
    under_way: list[tuple[Any, Tensor, Tensor]] = []  # what says that it has arrived, the buffer, and where it belongs
    for i, (piece, target) in enumerate(_pieces(x, made)):
        if buffers[i % 2] is None:
            buffers[i % 2] = pinned(piece.numel(), x.dtype, x.device)
        buffer = buffers[i % 2][: piece.numel()].view(piece.shape)
        buffer.copy_(piece, non_blocking=True)
        under_way.append((_event(x.device), buffer, target))
        if len(under_way) == 2:
            _empty(*under_way.pop(0))
    for each in under_way:
        _empty(*each)
    return made


def _event(card: Any) -> Any:
    """What can be waited for: all that has been asked of a card on the stream that is its current one."""
    if card.type != "cuda":
        return None
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(card))
    return event


def _empty(arrived: Any, buffer: Tensor, target: Tensor) -> None:
    """Take out of a buffer what has arrived in it."""
    if arrived is not None:
        arrived.synchronize()
    target.copy_(buffer)


def is_large(x: Tensor, place: Any) -> bool:
    """Return True if a tensor goes in pieces: it is large, plain, can be cut, and its memory is not pinned already."""
    if not is_on_the_way(x.device, place) or _is_traced() or x.numel() * x.element_size() < LARGE:
        return False
    return is_plain(x) and _can_be_cut(x) and not (x.is_cpu and x.is_pinned())


def _can_be_cut(x: Tensor) -> bool:
    """Return True if a tensor is one block of memory, or what lies between its longest steps fits in a piece."""
    order = sorted(range(x.ndim), key=x.stride, reverse=True)
    row = x.numel() // x.shape[order[0]] * x.element_size()
    return row <= PIECE or bool(x.permute(order).is_contiguous())
