"""Random numbers: every simulated GPU has its own generator, which computes the same values as the CPU's.

A simulated GPU's generator is a CPU generator with the GPU's label, because PyTorch makes none for a device in Python.
With the same seed, a simulated GPU and the host draw the same values.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

from devshim_backends._torch.simulation.state import NAME, TYPES, gpu_name, index_of, shown_device

RealGenerator: Any = torch._C.Generator


class _GeneratorType(type(RealGenerator)):  # type: ignore[misc]  # PyTorch is Any to the type checker
    """Metaclass that makes every generator an instance of the class that replaces `torch.Generator`."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, RealGenerator)


_GENERATORS: weakref.WeakValueDictionary[int, Generator] = weakref.WeakValueDictionary()
"""Address of the generator in C++ -> the GPU's generator: kernels receive new wrappers of the C++ object."""


class Generator(RealGenerator, metaclass=_GeneratorType):  # type: ignore[misc]
    """Replacement for `torch.Generator` while GPUs are simulated: ``torch.Generator("sim:1")`` works too."""

    gpu: int

    def __new__(cls, device: Any = "cpu") -> Any:
        named = torch.device(device)
        if named.type not in TYPES:
            return RealGenerator(device=named)
        return _label(RealGenerator.__new__(cls, device="cpu"), index_of(named))

    @property
    def device(self) -> Any:
        """The simulated GPU, as a `torch.device`."""
        return shown_device(self.gpu)

    def clone_state(self) -> Any:
        """Return a generator of the same GPU in the same state."""
        generator = _label(RealGenerator.__new__(type(self), device="cpu"), self.gpu)
        generator.set_state(self.get_state())
        return generator

    def __reduce__(self) -> Any:
        return _rebuild, (self.gpu, self.get_state())


def _label(generator: Any, gpu: int) -> Any:
    generator.gpu = gpu
    _GENERATORS[generator._cdata] = generator
    return generator


def _rebuild(gpu: int, state: Any) -> Any:
    generator = Generator(torch.device(NAME, gpu))
    generator.set_state(state)
    return generator


DEFAULTS: list[Any] = []
"""Each simulated GPU's own generator."""


def create_all(count: int) -> None:
    """Give GPUs their generators, with the host's seed, from the latest `torch.manual_seed`, as CUDA would have it."""
    seed = torch.default_generator.initial_seed()
    DEFAULTS[:] = [_label(RealGenerator.__new__(Generator, device="cpu"), gpu) for gpu in range(count)]
    for each in DEFAULTS:
        each.manual_seed(seed)


def generator_for(requested: Any, gpu: int) -> Any:
    """Return the generator to use on a GPU: the requested one, if it belongs to the GPU, or the GPU's own.

    Raises:
        RuntimeError: The requested one belongs to another device; the message is PyTorch's.
    """
    if requested is None:
        return DEFAULTS[gpu]
    labelled = _GENERATORS.get(requested._cdata)
    if labelled is None:
        msg = f"Expected a generator on '{gpu_name(gpu)}' but found one on '{requested.device}'"
        raise RuntimeError(msg)
    if labelled.gpu != gpu:
        msg = f"Expected a '{gpu_name(gpu)}' generator but found '{gpu_name(labelled.gpu)}'"
        raise RuntimeError(msg)
    return labelled
