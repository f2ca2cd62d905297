"""Conversion of a call's arguments to host tensors, and of its results back to the simulated GPU."""

from __future__ import annotations

from functools import reduce
from typing import Any

import torch

from devshim_backends._torch.simulation.device_rules import mixed
from devshim_backends._torch.simulation.memory import adopt
from devshim_backends._torch.simulation.relabel import HOST, relabel, to_host_lazily
from devshim_backends._torch.simulation.state import NAME, SHOWN, current, index_of, missing, shown

_get_device = torch._C.TensorBase.get_device  # -1 on the host and on meta
_Tensor = torch.Tensor
_scalar_tensor = torch.ops.aten.scalar_tensor.default
_CPU = torch.device("cpu")

ELSEWHERE = -2
"""The target of a call that asks for its result on the host, or on no device."""


class Carry:
    """The conversion of one operator call.

    Attributes:
        card: The index of the GPU that its tensors are on; -1 until one has been seen.
        host: A host tensor that a real GPU would refuse here, or None; `host_at` is its position.
    """

    __slots__ = ("card", "host", "host_at", "originals", "plan", "target")

    def __init__(self, plan: Any) -> None:
        self.plan = plan
        self.card = -1
        self.host: Any = None
        self.host_at = self.target = -1
        self.originals: dict[int, Any] = {}

    def positional(self, args: tuple[Any, ...]) -> list[Any]:
        """Return positional arguments as host tensors."""
        moved = list(args)
        count = len(moved)
        numbers = False
        for at, several in self.plan.places:
            if at >= count:
                break
            value = moved[at]
            if value is None:
                continue
            if several:
                moved[at] = [self.tensor(each, at) for each in value]
            elif isinstance(value, _Tensor):
                moved[at] = self.tensor(value, at)
            else:
                numbers = True
        if numbers and not self.plan.numbers:
            self._make_tensors(moved)
        return moved

    def named(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return keyword arguments as host tensors; a device among them is where the result belongs."""
        moved = {}
        for name, value in kwargs.items():
            if isinstance(value, torch.device):
                self.target = index_of(value) if value.type == NAME else ELSEWHERE
                value = _CPU if value.type == NAME else value
            elif name in self.plan.named and value is not None and not self._is_hosts(name, value):
                value = [self.tensor(v, -1) for v in value] if self.plan.named[name] else self.tensor(value, -1)
            moved[name] = value
        return moved

    def _is_hosts(self, name: str, value: Any) -> bool:
        """Return True for a host tensor with one element, where a real GPU's kernel reads it."""
        return name in self.plan.host_names and _get_device(value) < 0 and value.numel() == 1

    def tensor(self, value: Any, at: int) -> Any:
        """Return a tensor as a host tensor, and record its device; ``at`` is its argument's position."""
        if value is None:
            return None
        index = _get_device(value)
        if index >= 0:
            if index != self.card:
                self._meet(index, at)
            seen = to_host_lazily(value) if self.plan.lazy else relabel(value, HOST)
            self.originals[id(seen)] = (value, seen)  # the reference to `seen` keeps its id from being reused
            return seen
        if self.host is None and not self._welcome(value, at):
            self.host, self.host_at = value, at
        return value

    def settle(self) -> int:
        """Return the GPU of the call, after all arguments are converted."""
        card = self.card
        if card < 0:
            card = current() if self.target < 0 else self.target
        elif self.host is not None:
            raise mixed(self.plan, shown(card), self.host.device, self.host_at)
        elif self.target >= 0:
            card = self.target
        if card >= SHOWN.count:
            raise missing(card)
        return card

    def back(self, result: Any, card: int) -> Any:
        """Return results as the GPU's: a changed argument is returned itself, everything else is a new tensor."""
        if isinstance(result, _Tensor):
            found = self.originals.get(id(result))
            if found is not None:
                return found[0]
            return result if self.target == ELSEWHERE else adopt(result, card)
        if isinstance(result, (tuple, list)):
            return type(result)([self.back(each, card) for each in result])
        return result

    def _meet(self, index: int, at: int) -> None:
        if self.card >= 0:
            raise mixed(self.plan, shown(self.card), shown(index), at)
        self.card = index

    def _welcome(self, value: Any, at: int) -> bool:
        """Return True if a real GPU's kernel would accept this host tensor in this position."""
        plan = self.plan
        if at in plan.hosts:
            return True
        written = at < 0 or (at == 0 and plan.inplace)
        return plan.scalars and not written and not value.dim()

    def _make_tensors(self, moved: list[Any]) -> None:
        """Make tensors of Python numbers, to which PyTorch's boxing has converted its own 0-d tensors.

        Each has the dtype that the result has anyway, so that, like the original tensors, it does not change it.
        """
        given = [moved[at] for at, several in self.plan.places if not several and at < len(moved)]
        tensors = [each for each in given if isinstance(each, _Tensor)]
        for at, several in self.plan.places:
            if not several and at < len(moved) and isinstance(moved[at], (bool, int, float, complex)):
                number = moved[at]
                floats = [each for each in tensors if each.dtype is not torch.bool] or tensors
                dtype = (
                    reduce(torch.promote_types, [torch.result_type(each, number) for each in floats])
                    if floats
                    else None
                )
                moved[at] = _scalar_tensor(number, dtype=dtype, device=_CPU)
