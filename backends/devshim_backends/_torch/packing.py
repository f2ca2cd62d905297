"""Many small tensors, and large ones, on their way between the host and a CUDA card: few transfers, in pinned memory.

Requirements this module answers:

* A thousand tensors of 4 KiB cost a thousand transfers of some 10 us, most of it waiting.  Small ones of a dtype are
  joined on their own side, sent at once through a pinned buffer, and parted on the other side, into memory of their
  own: a tensor that stays keeps no other's memory.
* Nothing else can be told from one tensor at a time: strides, flags, order, and what has happened when the call
  returns.  What a plain block of memory cannot carry (gradients, other layouts, subclasses) goes by itself.
* A card that has no room for the parcel beside its contents gets, or gives, the tensors one by one.
* A large tensor in pageable memory goes in pieces through two pinned buffers, one filled or emptied while the other is
  sent: CUDA by itself copies such memory through one, at half the rate.
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
    from collections.abc import Callable, Iterator, Sequence

    from devshim.backend import Tensor

SMALL = 1 << 18
"""Bytes: above, a transfer's own time is not seen beside the data's."""
PARCEL = 1 << 24
"""Bytes: what a card must have room for beside the tensors themselves."""
FEW = 4
"""Tensors of a dtype: up to so many, a parcel saves nothing."""
LARGE = 1 << 26
"""Bytes from which pieces are worth their buffers."""
PIECE = 1 << 24

_PLAIN = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16}
_PLAIN |= {torch.float32, torch.float64, torch.complex64, torch.complex128}
"""The dtypes that PyTorch's operators on lists of tensors know on every card; others go by themselves."""


def is_plain(x: Tensor) -> bool:
    """Whether a tensor is a plain block of memory, so that its bytes and shape are all there is to it."""
    return (
        type(x) is torch.Tensor
        and x.layout is torch.strided
        and x.dtype in _PLAIN
        and not x.requires_grad
        and not x.is_nested
        and x.is_contiguous()
        and not (x.is_conj() or x.is_neg() or x._is_zerotensor() or x.is_inference())
        and (1 not in x.shape or _has_plain_strides(x))
        and torch._C._functorch.maybe_get_level(x) == -1  # of torch.func, which follows it
        and forward_ad._current_level < 0  # it may have a tangent
    )


def _has_plain_strides(x: Tensor) -> bool:
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


def is_on_the_way(x: Tensor, place: Any) -> bool:
    """Whether a tensor goes from the host to a CUDA card, or from one to the host."""
    return bool(x.is_cuda if place.type == "cpu" else x.is_cpu and place.type == "cuda")


def parcels(xs: Sequence[Tensor], place: Any) -> list[list[int]]:
    """Return which tensors travel together, by number: small ones of one dtype and device, a bounded number of bytes.

    Args:
        xs: Tensors.
        place: The ``torch.device`` they go to.
    """
    full: list[list[int]] = []
    filling: dict[Any, list[int]] = {}
    filled: dict[Any, int] = {}
    for i, x in enumerate(xs):
        if not is_on_the_way(x, place) or not is_plain(x) or not 0 < (size := x.nbytes) <= SMALL:
            continue
        kind = x.dtype, x.device
        room = filled.get(kind, PARCEL) + size
        if room > PARCEL:
            full.append(filling.get(kind, []))
            filling[kind], room = [], size
        filling[kind].append(i)
        filled[kind] = room
    return [members for members in (*full, *filling.values()) if len(members) > FEW]


def send(xs: Sequence[Tensor], place: Any, non_blocking: bool = False) -> list[Tensor]:
    """Return copies on a card of the host's tensors that travel together, each in memory of its own."""
    sizes = [x.numel() for x in xs]
    host = _pinned(sum(sizes), xs[0].dtype, place)
    torch.cat(_flat(xs), out=host)
    parcel = host.to(place, non_blocking=True, copy=True)
    made = _parted(parcel, xs, sizes)
    if not non_blocking:
        _wait(place)  # else only work on this stream would find it there
    return made


def fetch(xs: Sequence[Tensor]) -> list[Tensor]:
    """Return copies on the host of a card's tensors that travel together, each in memory of its own."""
    source = xs[0].device
    parcel = torch.cat(_flat(xs))
    host = _pinned(parcel.numel(), parcel.dtype, source)
    host.copy_(parcel, non_blocking=True)
    _wait(source)
    return _parted(host, xs, [x.numel() for x in xs])


def _flat(xs: Sequence[Tensor]) -> list[Tensor]:
    """Return each tensor as one axis; most are already, and a call for each costs more than their copy."""
    return [x if x.ndim == 1 else x.view(-1) for x in xs]


def _parted(parcel: Tensor, xs: Sequence[Tensor], sizes: list[int]) -> list[Tensor]:
    """Return what a parcel holds, each in memory of its own where the parcel is."""
    cut = parcel.split(sizes)
    parts = [part if x.ndim == 1 else part.view(x.shape) for part, x in zip(cut, xs, strict=True)]
    if hasattr(torch, "_foreach_clone"):
        return list(torch._foreach_clone(parts))
    made = [torch.empty_like(part) for part in parts]  # before PyTorch 2.13
    torch._foreach_copy_(made, list(parts))
    return made


def _pinned(count: int, dtype: Any, card: Any) -> Tensor:
    """A buffer of the host's for copies to or from a card; one that cannot be pinned does it, too, but slower."""
    if card.type == "cuda":
        try:
            with torch.cuda.device(card):  # pinning makes a context on the current card where there is none yet
                return torch.empty(count, dtype=dtype, device="cpu", pin_memory=True)
        except RuntimeError:  # the driver pins no more: what the machine lets it, or what is free
            pass
    return torch.empty(count, dtype=dtype, device="cpu")


def _wait(card: Any) -> None:
    """Wait for what was asked of a card on the stream that is its current one."""
    if card.type == "cuda":
        torch.cuda.current_stream(card).synchronize()


def copies(
    xs: Sequence[Tensor], place: Any, copy: Callable[[Tensor], Tensor], non_blocking: bool = False
) -> Iterator[Tensor]:
    """Give a copy of each tensor in order; what does not travel in a parcel is copied by itself.

    Args:
        xs: Tensors.
        place: The ``torch.device`` they go to.
        copy: Copies one.
        non_blocking: Whether copies to a card may be under way still when they are given.
    """
    taken = list(xs)
    first = {members[0]: members for members in parcels(taken, place)}
    together = {i for members in first.values() for i in members}
    made: dict[int, Tensor] = {}
    for i, x in enumerate(taken):
        if i in first:
            members = [taken[j] for j in first[i]]
            try:
                arrived = fetch(members) if place.type == "cpu" else send(members, place, non_blocking)
                made.update(zip(first[i], arrived, strict=True))
                del arrived  # else it would keep the last of them
            except torch.OutOfMemoryError:  # the parcel was too much: what fits without it shall fit
                together.difference_update(first[i])
        yield made.pop(i) if i in together else copy(x)


def carried(x: Tensor, place: Any, non_blocking: bool = False) -> Tensor:
    """Return a copy on another device, in pieces where that is faster."""
    if not is_large(x, place):
        return x.to(place, None, non_blocking, True)
    return in_pieces(x, place, non_blocking) if x.is_cpu else out_in_pieces(x)


def in_pieces(x: Tensor, place: Any, non_blocking: bool = False) -> Tensor:
    """Return a copy on a card of a large tensor of the host's, sent in pieces through two pinned buffers."""
    made = torch.empty_like(x, device=place)
    source, target = x.view(-1), made.view(-1)
    step = PIECE // x.element_size()
    buffers = [_pinned(step, x.dtype, place) for _ in range(2)]
    sent: list[Any] = [None, None]
    for i, start in enumerate(range(0, source.numel(), step)):
        piece = source[start : start + step]
        buffer = buffers[i % 2][: piece.numel()]
        if sent[i % 2] is not None:
            sent[i % 2].synchronize()  # the buffer is being read still
        buffer.copy_(piece)
        target[start : start + step].copy_(buffer, non_blocking=True)
        sent[i % 2] = _event(place)
    if not non_blocking:
        _wait(place)
    return made


def out_in_pieces(x: Tensor) -> Tensor:
    """Return a copy on the host of a large tensor of a card's, fetched in pieces through two pinned buffers."""
    made = torch.empty_like(x, device="cpu")
    source, target = x.view(-1), made.view(-1)
    step = PIECE // x.element_size()
    buffers = [_pinned(step, x.dtype, x.device) for _ in range(2)]
    under_way: list[tuple[Any, Tensor, Tensor]] = []  # what says that it has arrived, the buffer, and where it belongs
    for i, start in enumerate(range(0, source.numel(), step)):
        piece = source[start : start + step]
        buffer = buffers[i % 2][: piece.numel()]
        buffer.copy_(piece, non_blocking=True)
        under_way.append((_event(x.device), buffer, target[start : start + step]))
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
    """Whether a tensor goes in pieces: large, plain, and not in memory that is pinned already."""
    if not is_on_the_way(x, place) or _is_traced() or x.numel() * x.element_size() < LARGE:
        return False
    return is_plain(x) and not (x.is_cpu and x.is_pinned())
