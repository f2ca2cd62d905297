"""Many small tensors, and large ones, on their way from the host to a CUDA card: few transfers, from pinned memory.

Requirements this module answers:

* A thousand tensors of 4 KiB cost a thousand transfers of some 10 us, most of it waiting.  Small ones of a dtype are
  joined in one pinned buffer, sent at once, and parted on the card, into memory of their own: a tensor that stays keeps
  no other's memory.
* Nothing else can be told from one tensor at a time: strides, flags, order.  What a plain block of memory cannot carry
  (gradients, other layouts, subclasses) goes by itself.
* A card that has no room for the parcel beside its contents gets the tensors one by one.
* A large tensor in pageable memory goes in pieces through two pinned buffers, one filled while the other is sent: CUDA
  by itself copies such memory through one, at half the rate.
* The source may be written to, or freed, when the call returns, and nothing reads it later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

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


def fits(x: Tensor) -> bool:
    """Whether a tensor is a plain block of host memory, so that its bytes and shape are all there is to it."""
    return (
        type(x) is torch.Tensor
        and x.is_cpu
        and x.layout is torch.strided
        and not x.requires_grad
        and x.is_contiguous()
        and not x.is_quantized
        and not x.is_conj()
        and not x.is_neg()
    )


def parcels(xs: Sequence[Tensor]) -> list[list[int]]:
    """Return which tensors travel together, by number: small ones of one dtype, a bounded number of bytes."""
    full: list[list[int]] = []
    filling: dict[Any, tuple[list[int], int]] = {}
    for i, x in enumerate(xs):
        if not fits(x) or not 0 < (size := x.numel() * x.element_size()) <= SMALL:
            continue
        members, filled = filling.get(x.dtype, ([], 0))
        if filled + size > PARCEL:
            full.append(members)
            members, filled = [], 0
        members.append(i)
        filling[x.dtype] = members, filled + size
    return [members for members in [*full, *(members for members, _ in filling.values())] if len(members) > FEW]


def send(xs: Sequence[Tensor], place: Any) -> list[Tensor]:
    """Return copies of tensors that travel together, each in memory of its own."""
    sizes = [x.numel() for x in xs]
    host = torch.empty(sum(sizes), dtype=xs[0].dtype, pin_memory=place.type == "cuda")
    torch.cat([x.reshape(-1) for x in xs], out=host)
    parcel = host.to(place, non_blocking=True)  # the pinned memory is kept until it has been read
    made = [torch.empty_like(x, device=place) for x in xs]
    torch._foreach_copy_([each.view(-1) for each in made], list(parcel.split(sizes)))
    return made


def copies(xs: Sequence[Tensor], place: Any, copy: Callable[[Tensor], Tensor]) -> Iterator[Tensor]:
    """Give a copy of each tensor in order; what does not travel in a parcel is copied by itself.

    Args:
        xs: Tensors.
        place: The ``torch.device`` they go to.
        copy: Copies one.
    """
    taken = list(xs)
    first = {members[0]: members for members in parcels(taken)}
    together = {i for members in first.values() for i in members}
    made: dict[int, Tensor] = {}
    for i, x in enumerate(taken):
        if i in first:
            try:
                made.update(zip(first[i], send([taken[j] for j in first[i]], place), strict=True))
            except torch.OutOfMemoryError:  # the parcel was too much: what fits without it shall fit
                together.difference_update(first[i])
        yield made.pop(i) if i in together else copy(x)


def in_pieces(x: Tensor, place: Any) -> Tensor:
    """Return a copy of a large tensor, sent in pieces through two pinned buffers."""
    made = torch.empty_like(x, device=place)
    source, target = x.view(-1), made.view(-1)
    step = PIECE // x.element_size()
    pinned = place.type == "cuda"
    buffers = [torch.empty(step, dtype=x.dtype, pin_memory=pinned) for _ in range(2)]
    sent: list[Any] = [None, None]
    for i, start in enumerate(range(0, source.numel(), step)):
        piece = source[start : start + step]
        buffer = buffers[i % 2][: piece.numel()]
        if sent[i % 2] is not None:
            sent[i % 2].synchronize()  # the buffer is being read still
        buffer.copy_(piece)
        target[start : start + step].copy_(buffer, non_blocking=True)
        if pinned:
            sent[i % 2] = torch.cuda.Event()
            sent[i % 2].record(torch.cuda.current_stream(place))
    return made


def is_large(x: Tensor) -> bool:
    """Whether a tensor goes in pieces: large, plain, and in memory that is not pinned already."""
    return x.numel() * x.element_size() >= LARGE and fits(x) and not x.is_pinned()
