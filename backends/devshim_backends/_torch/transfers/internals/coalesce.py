"""Copies of many small tensors between the host and a CUDA card: one transfer for many, in pinned memory.

Requirements of this module:

* A thousand tensors of 4 KiB cost a thousand transfers of about 10 us each, most of it waiting. Small tensors of one
  dtype are joined into a parcel on their own side, sent in one transfer through a pinned buffer, and separated on the
  other side. Each copy gets its own memory, so that a tensor that stays alive does not keep the others' memory.
* The result is otherwise the same as from copies one by one: strides, flags, order, and what is complete when the call
  returns. A tensor that is not a plain block of memory (gradients, other layouts, subclasses) is copied singly.
* If a card has no free memory for the parcel in addition to its contents, the tensors are copied one by one.
* Inspecting the tensors costs less than sending them: common properties are read once for all similar tensors.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from devshim_backends._torch.transfers.internals import pinned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from devshim.contract.backend import Tensor

SMALL_BYTES = 1 << 18
"""Maximum bytes of a small tensor; above it, the fixed cost of a transfer is negligible next to the data's."""
PARCEL_BYTES = 1 << 24
"""Maximum bytes of a parcel: free memory that a card needs in addition to the tensors themselves."""
TOO_FEW = 4
"""Number of tensors of a dtype up to which a parcel saves nothing."""


class Parcel:
    """A group of tensors that are copied in one transfer.

    Attributes:
        members: The numbers of the tensors.
        sizes: The number of elements of each.
        free: The number of further elements that fit.
        is_flat: True if each tensor has one axis.
        shape: The shape of each if all have the same shape, with at least one axis; otherwise None.
    """

    __slots__ = ("free", "is_flat", "members", "shape", "sizes")

    def __init__(self, free: int) -> None:
        self.members: list[int] = []
        self.sizes: list[int] = []
        self.free, self.is_flat = free, True
        self.shape: Any = None

    def add(self, numbers: Sequence[int], form: Form) -> None:
        """Add tensors of one form, which must fit."""
        if not self.members and form.shape:
            self.shape = form.shape
        elif self.shape != form.shape:
            self.shape = None
        self.is_flat = self.is_flat and len(form.shape) == 1
        self.members.extend(numbers)
        self.sizes.extend([form.size] * len(numbers))
        self.free -= form.size * len(numbers)


def make_parcels(xs: Sequence[Tensor], target: Any) -> list[Parcel]:
    """Return the parcels to copy: small tensors of one dtype and device, a bounded number of bytes.

    Lazy conjugation and negation, zeros without memory, and inference tensors are allowed, because a single copy of
    the tensor is also a plain tensor of its values.

    Args:
        xs: Tensors.
        target: The ``torch.device`` to copy them to.
    """
    if pinned.is_tracked():
        return []
    parcels_by_dtype: dict[Any, list[Parcel]] = {}
    forms: dict[Any, Form] = {}
    stop = 0
    for key, group in groupby(_keys_of(xs)):  # similar tensors together: a call for each would cost noticeable time
        start, stop = stop, stop + len(list(group))
        form = forms.get(key)
        if form is None:
            form = forms[key] = _form(key, target, parcels_by_dtype)
        if form.size:
            numbers = range(start, stop)
            if form.has_one or not all(map(torch.Tensor.is_contiguous, xs[start:stop])):
                _fill([i for i in numbers if xs[i].is_contiguous() and pinned.has_plain_strides(xs[i])], form)
            else:
                _fill(numbers, form)
    return [parcel for parcels in parcels_by_dtype.values() for parcel in parcels if len(parcel.members) > TOO_FEW]


class Form(NamedTuple):
    """The properties of similar tensors that matter for a parcel.

    Attributes:
        size: The number of elements of each; 0 if they are not copied in a parcel.
        shape: The shape of each.
        has_one: True if an axis has length 1.
        max_size: The maximum number of elements of a parcel.
        parcels: The parcels for such tensors; the last one is being filled.
    """

    size: int
    shape: Any
    has_one: bool
    max_size: int
    parcels: list[Parcel]


_KEY = attrgetter("dtype", "device", "layout", "requires_grad", "shape")
_KINDS = {torch.Tensor, torch.nn.Parameter}
"""The classes whose copy is a plain tensor."""


def _keys_of(xs: Sequence[Tensor]) -> list[Any]:
    """Return `_KEY` of each tensor; None for a subclass, which may return anything, and for a nested tensor."""
    if _KINDS.issuperset(map(type, xs)):
        with suppress(RuntimeError):  # a nested tensor has no shape
            return list(map(_KEY, xs))
    return [_KEY(x) if type(x) in _KINDS and not x.is_nested else None for x in xs]


def _form(key: Any, target: Any, parcels_by_dtype: dict[Any, list[Parcel]]) -> Form:
    """Return the form of the tensors with these properties."""
    if key is None:
        return Form(0, None, False, 0, [])
    dtype, device, layout, requires_grad, shape = key
    size = shape.numel()
    is_block = dtype in pinned.PLAIN_DTYPES and layout is torch.strided
    needs_gradient = requires_grad and torch.is_grad_enabled()
    is_small = size * dtype.itemsize <= SMALL_BYTES
    if not (is_block and is_small and pinned.is_between_host_and_card(device, target)) or needs_gradient:
        size = 0
    parcels = parcels_by_dtype.setdefault((dtype, device), [Parcel(0)])
    return Form(size, shape, 1 in shape, PARCEL_BYTES // dtype.itemsize, parcels)


def _fill(numbers: Sequence[int], form: Form) -> None:
    """Add similar tensors to parcels, by number."""
    while numbers:
        parcel = form.parcels[-1]
        count = parcel.free // form.size
        if not count:
            form.parcels.append(Parcel(form.max_size))
            continue
        members, numbers = numbers[:count], numbers[count:]
        parcel.add(members, form)


def send(xs: Sequence[Tensor], parcel: Parcel, target: Any, non_blocking: bool = False) -> list[Tensor]:
    """Return copies on a card of a parcel's host tensors, each in its own memory."""
    host = pinned.pinned(sum(parcel.sizes), xs[0].dtype, target)
    if parcel.is_flat:
        torch.cat(xs, out=host)
    elif parcel.shape:
        torch.cat(xs, out=host.view(-1, *parcel.shape[1:]))
    else:  # a view of each, made in Python, would take longer
        host.copy_(torch._C._nn.flatten_dense_tensors(xs))
    copies = _divide(host.to(target, non_blocking=True, copy=True), xs, parcel)
    if not non_blocking:
        pinned.wait(target)  # otherwise only later work on this stream could read the copies
    return copies


def fetch(xs: Sequence[Tensor], parcel: Parcel) -> list[Tensor]:
    """Return copies on the host of a parcel's tensors on a card, each in its own memory."""
    source = xs[0].device
    alike = parcel.is_flat or parcel.shape
    joined = torch.cat(xs).reshape(-1) if alike else torch._C._nn.flatten_dense_tensors(xs)
    host = pinned.pinned(joined.numel(), joined.dtype, source)
    host.copy_(joined, non_blocking=True)
    pinned.wait(source)
    return _divide(host, xs, parcel)


def _divide(joined: Tensor, xs: Sequence[Tensor], parcel: Parcel) -> list[Tensor]:
    """Return the contents of a parcel, each tensor in its own memory, on the parcel's device."""
    if parcel.shape:
        parts = joined.view(-1, *parcel.shape).unbind()
    elif parcel.is_flat:
        parts = joined.split(parcel.sizes)
    else:
        parts = torch._C._nn.unflatten_dense_tensors(joined, xs)
    if hasattr(torch, "_foreach_clone"):
        return list(torch._foreach_clone(parts))
    copies = [torch.empty_like(part) for part in parts]  # for PyTorch before 2.13
    torch._foreach_copy_(copies, list(parts))
    return copies


def copy_all(
    xs: Sequence[Tensor], target: Any, copy: Callable[[Tensor], Tensor], non_blocking: bool = False
) -> Iterable[Tensor]:
    """Return a copy of each tensor in order; a tensor that fits no parcel is copied singly.

    Args:
        xs: Tensors.
        target: The ``torch.device`` to copy them to.
        copy: Copies one tensor.
        non_blocking: True if copies to a card may still be running when they are returned.
    """
    tensors = list(xs)
    if len(tensors) <= TOO_FEW:
        return map(copy, tensors)
    parcels = make_parcels(tensors, target)
    if len(parcels) == 1 and len(parcels[0].members) == len(tensors):
        return _copy_parcel(tensors, parcels[0], target, non_blocking) or map(copy, tensors)
    return _in_order(tensors, parcels, target, copy, non_blocking)


def _in_order(
    tensors: list[Tensor], parcels: list[Parcel], target: Any, copy: Callable[[Tensor], Tensor], non_blocking: bool
) -> Iterator[Tensor]:
    """Yield a copy of each tensor; a parcel is copied when its first tensor is due."""
    first = {parcel.members[0]: parcel for parcel in parcels}
    copies: dict[int, Tensor] = {}
    for i, x in enumerate(tensors):
        if i in first:
            members = first[i].members
            arrived = _copy_parcel([tensors[j] for j in members], first[i], target, non_blocking)
            copies.update(zip(members, arrived, strict=False))
            del arrived  # otherwise it would keep the last of them alive
        yield copies.pop(i) if i in copies else copy(x)


def _copy_parcel(xs: list[Tensor], parcel: Parcel, target: Any, non_blocking: bool) -> list[Tensor]:
    """Return copies of a parcel's tensors; none if memory did not suffice, as single copies may still fit."""
    try:
        return fetch(xs, parcel) if target.type == "cpu" else send(xs, parcel, target, non_blocking)
    except torch.OutOfMemoryError:
        return []
