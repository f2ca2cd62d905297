"""Random numbers: every simulated GPU has its own generator, which computes the same values as the CPU's.

A simulated GPU's generator is a CPU generator with the GPU's label, because PyTorch makes none for a device in Python.
With the same seed, a simulated GPU and the host draw the same values.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

from devshim_backends._torch.simulation.state import NAME, index_of, shown

RealGenerator: Any = torch._C.Generator


class _GeneratorType(type(RealGenerator)):  # type: ignore[misc]  # PyTorch is Any to the type checker
    """Metaclass that makes every generator an instance of the class that replaces `torch.Generator`."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, RealGenerator)


_LABELLED: weakref.WeakValueDictionary[int, Generator] = weakref.WeakValueDictionary()
"""Address of the generator in C++ -> the GPU's generator: kernels receive new wrappers of the C++ object."""


class Generator(RealGenerator, metaclass=_GeneratorType):  # type: ignore[misc]
    """Replacement for `torch.Generator` while GPUs are simulated: ``torch.Generator("sim:1")`` works too."""

    card: int

    def __new__(cls, device: Any = "cpu") -> Any:
        named = torch.device(device)
        if named.type != NAME:
            return RealGenerator(device=named)
        return _labelled(RealGenerator.__new__(cls, device="cpu"), index_of(named))

    @property
    def device(self) -> Any:
        """The simulated GPU, as a `torch.device`."""
        return torch.device(NAME, self.card)

    def clone_state(self) -> Any:
        """Return a generator of the same GPU in the same state."""
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
"""Each simulated GPU's own generator."""


def begin(count: int) -> None:
    """Give GPUs their generators, with the host's seed, from the latest `torch.manual_seed`, as CUDA would have it."""
    seed = torch.default_generator.initial_seed()
    DEFAULTS[:] = [_labelled(RealGenerator.__new__(Generator, device="cpu"), card) for card in range(count)]
    for each in DEFAULTS:
        each.manual_seed(seed)


def generator_for(given: Any, card: int) -> Any:
    """Return the generator to use on a GPU: the given one, if it belongs to the GPU, or the GPU's own.

    Raises:
        RuntimeError: The given one belongs to another device; the message is PyTorch's.
    """
    if given is None:
        return DEFAULTS[card]
    found = _LABELLED.get(given._cdata)
    if found is None:
        raise RuntimeError(f"Expected a generator on '{shown(card)}' but found one on '{given.device}'")
    if found.card != card:
        raise RuntimeError(f"Expected a '{shown(card)}' generator but found '{shown(found.card)}'")
    return found
