"""Random numbers: every card has a generator of its own, which computes what the CPU's does.

A generator of a card is the CPU's kind with the card's label, because PyTorch makes none for a device in Python.
Seeded alike, a card and the host draw the same values.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

from devshim_backends._torch.simulation.state import NAME, index_of, shown

RealGenerator: Any = torch._C.Generator


class _GeneratorType(type(RealGenerator)):  # type: ignore[misc]  # PyTorch is Any to the type checker
    """While it stands in for `torch.Generator`, every generator is an instance."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, RealGenerator)


_LABELLED: weakref.WeakValueDictionary[int, Generator] = weakref.WeakValueDictionary()
"""Generators of cards by the address of PyTorch's own object: kernels are handed new wrappers of that."""


class Generator(RealGenerator, metaclass=_GeneratorType):  # type: ignore[misc]
    """What `torch.Generator` is while cards are simulated: ``torch.Generator("sim:1")`` works, too."""

    card: int

    def __new__(cls, device: Any = "cpu") -> Any:
        named = torch.device(device)
        if named.type != NAME:
            return RealGenerator(device=named)
        return _labelled(RealGenerator.__new__(cls, device="cpu"), index_of(named))

    @property
    def device(self) -> Any:
        """The card, as a `torch.device`."""
        return torch.device(NAME, self.card)

    def clone_state(self) -> Any:
        """Return a generator of the same card in the same state."""
        made = _labelled(RealGenerator.__new__(type(self), device="cpu"), self.card)
        made.set_state(self.get_state())
        return made

    def __reduce__(self) -> Any:
        return _restored, (self.card, self.get_state())


def _labelled(made: Any, card: int) -> Any:
    made.card = card
    _LABELLED[made._cdata] = made
    return made


def _restored(card: int, state: Any) -> Any:
    made = Generator(torch.device(NAME, card))
    made.set_state(state)
    return made


DEFAULTS: list[Any] = []
"""Each card's own generator."""


def begin(count: int) -> None:
    """Give cards their generators, seeded as the host is: by the latest `torch.manual_seed`, as CUDA's would be."""
    seed = torch.default_generator.initial_seed()
    DEFAULTS[:] = [_labelled(RealGenerator.__new__(Generator, device="cpu"), card) for card in range(count)]
    for each in DEFAULTS:
        each.manual_seed(seed)


def generator_for(given: Any, card: int) -> Any:
    """Return the generator to draw from on a card: the one given, if it is the card's, or the card's own.

    Raises:
        RuntimeError: The one given belongs elsewhere, in PyTorch's words.
    """
    if given is None:
        return DEFAULTS[card]
    found = _LABELLED.get(given._cdata)
    if found is None:
        raise RuntimeError(f"Expected a generator on '{shown(card)}' but found one on '{given.device}'")
    if found.card != card:
        raise RuntimeError(f"Expected a '{shown(card)}' generator but found '{shown(found.card)}'")
    return found
