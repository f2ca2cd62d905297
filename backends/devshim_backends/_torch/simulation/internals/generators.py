"""Random numbers: every simulated GPU has its own generator, which computes the same values as the CPU's.

PyTorch makes no generator for a device in Python, so a simulated GPU's generator has two parts: a CPU generator that
draws, so that a simulated GPU and the host draw the same values from the same seed, and the object that the program
sees. Its C++ object says that it is on the GPU, so that operators of the host refuse it, as they refuse a real GPU's.
"""

from __future__ import annotations

import ctypes
import weakref
from functools import cache
from typing import Any, NoReturn

import torch

from devshim.errors import UnsupportedError
from devshim_backends._torch.simulation.internals.state import NAME, TYPES, index_of, shown_device

RealGenerator: Any = torch._C.Generator


class _GeneratorType(type(RealGenerator)):  # type: ignore[misc]  # PyTorch is Any to the type checker
    """Metaclass that makes every generator an instance of the class that replaces `torch.Generator`."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, RealGenerator)


_GENERATORS: weakref.WeakValueDictionary[int, Generator] = weakref.WeakValueDictionary()
"""Address of the generator in C++ -> the GPU's generator: kernels receive new wrappers of the C++ object."""


class Generator(RealGenerator, metaclass=_GeneratorType):  # type: ignore[misc]
    """Replacement for `torch.Generator` while GPUs are simulated: ``torch.Generator("sim:1")`` also works.

    Attributes:
        gpu: The index of the GPU.
        host: The generator that draws.
    """

    gpu: int
    host: Any
    _has_index: bool

    def __new__(cls, device: Any = "cpu") -> Any:
        named = torch.device(device)
        if named.type not in TYPES:
            return RealGenerator(device=named)
        return _make(index_of(named), named.index is not None, cls)

    @property
    def device(self) -> Any:
        """The simulated GPU, as a `torch.device`; as on a real one, ``cuda`` if it was named without an index."""
        shown = shown_device(self.gpu)
        return shown if self._has_index or shown.type == NAME else torch.device(shown.type)

    def manual_seed(self, seed: int) -> Any:
        """Seed the generator, and return it."""
        self.host.manual_seed(seed)
        return self

    def _seed_from_system(self) -> int:
        """Seed the generator with a seed from the system, and return the seed."""
        return int(self.host.seed())

    seed = _seed_from_system

    def initial_seed(self) -> int:
        """Return the seed."""
        return int(self.host.initial_seed())

    def get_state(self) -> Any:
        """Return the state, as a tensor of bytes on the host."""
        return self.host.get_state()

    def set_state(self, state: Any) -> Any:
        """Set the generator to a state that `get_state` returned, and return the generator."""
        self.host.set_state(state)
        return self

    def clone_state(self) -> Any:
        """Return a generator of the same GPU in the same state."""
        return _make(self.gpu, self._has_index).set_state(self.get_state())

    def _refuse(self, *args: Any) -> NoReturn:
        """Refuse what only CUDA's generators have."""
        msg = "the generator of a simulated GPU draws the CPU's numbers, so it has no offset, and no state for graphs"
        raise UnsupportedError(msg, "use get_state() and set_state()")

    get_offset = set_offset = graphsafe_get_state = graphsafe_set_state = _refuse

    def __reduce__(self) -> Any:
        return _rebuild, (self.gpu, self.get_state())

    def __repr__(self) -> str:
        return f"<torch._C.Generator object at {id(self):#x}>"


def _make(gpu: int, has_index: bool = True, cls: Any = Generator) -> Any:
    """Return a new generator of a GPU, whose device has an index or not."""
    generator = RealGenerator.__new__(cls, device="cpu")
    generator.gpu, generator.host, generator._has_index = gpu, RealGenerator(device="cpu"), has_index
    offset = _offset_of_device()
    if offset is not None:
        _device_bytes(generator, offset)[:] = _as_bytes(gpu if has_index else _NO_INDEX)
    _GENERATORS[generator._cdata] = generator
    return generator


def _device_bytes(generator: Any, offset: int) -> Any:
    """Return two bytes of a generator's C++ object, which can be written to."""
    return (ctypes.c_uint8 * 2).from_address(generator._cdata + offset)


def _as_bytes(gpu: int) -> bytes:
    """Return a simulated GPU as a ``c10::Device``: its type and its index, a byte each."""
    return bytes([_PRIVATE_USE, gpu])


@cache
def _offset_of_device() -> int | None:
    """Return the position of the device in a generator's C++ object; found once, by a test with PyTorch."""
    generator = RealGenerator(device="cpu")
    for offset in range(_SEARCHED):
        found = _device_bytes(generator, offset)
        before = bytes(found)
        if before == _CPU:
            found[:] = _as_bytes(1)
            shown = generator.device
            found[:] = before
            if shown == torch.device(NAME, 1):
                return offset
    return None


_NO_INDEX = 255
_CPU = bytes([0, _NO_INDEX])
"""The CPU as a ``c10::Device``: type 0, and no index."""
_PRIVATE_USE = 20
"""The number of PrivateUse1 in ``c10::DeviceType``."""
_SEARCHED = 96
"""The bytes of a generator that are searched: those of ``c10::GeneratorImpl``, whose size is 88 in PyTorch 2.13."""


def _rebuild(gpu: int, state: Any) -> Any:
    generator = Generator(torch.device(NAME, gpu))
    generator.set_state(state)
    return generator


DEFAULTS: list[Any] = []
"""Each simulated GPU's own generator."""


def create_all(count: int) -> None:
    """Give GPUs their generators, with the host's seed, from the latest `torch.manual_seed`, as CUDA would have it."""
    seed = torch.default_generator.initial_seed()
    DEFAULTS[:] = [_make(gpu) for gpu in range(count)]
    for each in DEFAULTS:
        each.manual_seed(seed)


def generator_for(requested: Any, gpu: int) -> Any:
    """Return the generator that draws for a GPU: the requested one's, also if it is of another GPU, or the GPU's own.

    PyTorch compares only the types of the devices (``check_generator`` in ``ATen/core/Generator.h``).

    Raises:
        RuntimeError: The requested one belongs to the host; the message is PyTorch's.
    """
    if requested is None:
        return DEFAULTS[gpu].host
    labelled = _GENERATORS.get(requested._cdata)
    if labelled is None:
        msg = f"Expected a '{shown_device(gpu).type}' device type for generator but found '{requested.device.type}'"
        raise RuntimeError(msg)
    return labelled.host
