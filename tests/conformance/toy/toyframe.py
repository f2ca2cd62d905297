"""A tensor framework of a hundred lines, which proves that the conformance kit can fail.

It has tensors on a device, views, an error for mixed devices, automatic differentiation, and a default device for each
thread.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

_default = threading.local()
CARDS = int(os.environ.get("TOYFRAME_CARDS", "0"))
"""The number of GPUs that this machine claims to have."""
SETTINGS = {"default_dtype": "float32"}
GENERATOR = [np.random.default_rng(0)]


class Card:
    """The device of a tensor; number -1 is the host."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Card) and self.number == other.number

    def __hash__(self) -> int:
        return hash(self.number)


HOST = Card(-1)


def mixed(one: Card, other: Card) -> RuntimeError:
    """Return the error for an operator on tensors of two devices."""
    return RuntimeError(f"tensors on cards {one.number} and {other.number}")


MIXED: list[Callable[[Card, Card], RuntimeError]] = [mixed]
"""The factory of that error; an adapter may replace it."""


class Tensor:
    """Data on a device, and a function that passes its gradient to the tensors from which it was computed."""

    __array_ufunc__ = None

    def __init__(
        self, data: Any, card: Card = HOST, parents: Sequence[tuple[Tensor, Callable[[Any], Any]]] = ()
    ) -> None:
        self.data = np.asarray(data)
        self.card = card
        self.parents = parents
        self.requires_grad = any(parent.requires_grad for parent, _ in parents)
        self.grad: Tensor | None = None

    def backward(self, gradient: Any) -> None:
        """Add a gradient to this tensor's own, and pass it on."""
        if not self.requires_grad:
            return
        if not self.parents:
            self.grad = Tensor(gradient if self.grad is None else self.grad.data + gradient, self.card)
        for parent, pull in self.parents:
            parent.backward(pull(gradient))

    def _other(self, other: Any) -> Tensor:
        if not isinstance(other, Tensor):
            return Tensor(np.asarray(other, self.data.dtype), self.card)
        if other.card != self.card:
            raise MIXED[0](self.card, other.card)
        return other

    def __add__(self, other: Any) -> Tensor:
        b = self._other(other)
        return Tensor(self.data + b.data, self.card, [(self, lambda g: g), (b, lambda g: g)])

    __radd__ = __add__

    def __mul__(self, other: Any) -> Tensor:
        b = self._other(other)
        return Tensor(self.data * b.data, self.card, [(self, lambda g: g * b.data), (b, lambda g: g * self.data)])

    __rmul__ = __mul__

    def __matmul__(self, other: Any) -> Tensor:
        b = self._other(other)
        pulls = [(self, lambda g: g @ b.data.T), (b, lambda g: self.data.T @ g)]
        return Tensor(self.data @ b.data, self.card, pulls)

    def __getitem__(self, index: Any) -> Tensor:
        def pull(g: Any) -> Any:
            full = np.zeros_like(self.data)
            full[index] = g
            return full

        return Tensor(self.data[index], self.card, [(self, pull)])

    def __setitem__(self, index: Any, value: Any) -> None:
        self.data[index] = value


def default() -> Card:
    """Return the device of new tensors in this thread."""
    return getattr(_default, "card", HOST)


@contextmanager
def on(card: Card) -> Iterator[None]:
    """Make a device the default of this thread."""
    before = default()
    _default.card = card
    try:
        yield
    finally:
        _default.card = before


def zeros(shape: tuple[int, ...]) -> Tensor:
    """Return zeros on the default device."""
    return Tensor(np.zeros(shape, SETTINGS["default_dtype"]), default())
