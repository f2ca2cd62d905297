"""``torch.sim``: the counterpart of ``torch.cuda``, as far as it applies to simulated GPUs.

PyTorch itself uses this module: `torch.manual_seed`, `torch.get_device_module`, `torch.accelerator`, checkpointing,
DataParallel, autocast and `torch.load` among others. A GPU without a limit has as much memory as the host.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch

from devshim.devices import host
from devshim_backends._torch.failures import FullDeviceError
from devshim_backends._torch.simulation.internals import generators, late_copies, state, stream_order
from devshim_backends._torch.simulation.internals.state import index_of, make_current
from devshim_backends._torch.simulation.internals.streams import Event, Stream, current_stream, default_stream
from devshim_backends._torch.simulation.memory import SIMULATED

OutOfMemoryError = FullDeviceError
default_generators = generators.DEFAULTS
_initialized = True
"""Read by `torch.utils.checkpoint`, which saves no generator state for a device that has not started."""

__all__ = [
    "Event",
    "OutOfMemoryError",
    "Stream",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "empty_cache",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "is_available",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_peak_memory_stats",
    "seed",
    "set_device",
    "set_rng_state",
    "set_rng_state_all",
    "stream",
    "synchronize",
]


# ---------------------------------------------------------------------- devices
def is_available() -> bool:
    """Return True if GPUs are simulated."""
    return state.shown_count() > 0


def is_initialized() -> bool:
    """Return True if GPUs are simulated: there is nothing to start."""
    return state.SIMULATION.count > 0


def init() -> None:
    """Do nothing: there is nothing to start."""


_lazy_init = init


def _is_in_bad_fork() -> bool:
    """Return True only with native names (`native_names.internals.forking`): the memory is the host's."""
    return state.SIMULATION.count_of_parent > 0


def device_count() -> int:
    """Return the number of simulated GPUs."""
    return state.shown_count()


def current_device() -> int:
    """Return the index of this thread's current GPU."""
    return state.current()


def set_device(device: Any) -> None:
    """Make a GPU this thread's current one."""
    make_current(index_of(device))


class device:  # the name of torch.cuda.device
    """Context manager that makes a GPU this thread's current one; None changes nothing."""

    def __init__(self, device: Any) -> None:
        self.idx = -1 if device is None else index_of(device)
        self.prev_idx = -1

    def __enter__(self) -> device:
        self.prev_idx = make_current(self.idx)
        return self

    def __exit__(self, *failure: object) -> None:
        if self.idx >= 0 and self.prev_idx < state.SIMULATION.count:
            make_current(self.prev_idx)


class _Properties:
    """The result of `get_device_properties`."""

    name = "Simulated GPU"
    major = minor = 0
    multi_processor_count = 1

    def __init__(self, index: int) -> None:
        self.index = index
        limit = state.SIMULATION.limit
        self.total_memory = host.memory().total or 0 if limit is None else limit

    def __repr__(self) -> str:
        return f"SimulatedDeviceProperties(name='{self.name}', total_memory={self.total_memory >> 20}MB)"


def get_device_properties(device: Any = None) -> _Properties:
    """Return a GPU's name, total memory in bytes and the other properties that PyTorch reads."""
    return _Properties(index_of(device))


def get_device_name(device: Any = None) -> str:
    """Return ``"Simulated GPU"``."""
    return get_device_properties(device).name


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """Return ``(0, 0)``: a simulated GPU lacks a compute capability."""
    properties = get_device_properties(device)
    return properties.major, properties.minor


def synchronize(device: Any = None) -> None:
    """Check that the GPU exists, and deliver its copies that are under way; nothing else needs to wait."""
    late_copies.finish(index_of(device))


class stream:  # the name of torch.cuda.stream
    """Context manager that makes a stream and its GPU current; None changes nothing."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __enter__(self) -> Any:
        return self.stream if self.stream is None else self.stream.__enter__()

    def __exit__(self, *failure: object) -> None:
        if self.stream is not None:
            self.stream.__exit__(*failure)


def set_stream(stream: Any) -> None:
    """Make a stream the current one of its GPU, and its GPU the current one."""
    make_current(stream.device_index)
    stream_order.set_current_stream(stream.device_index, stream.stream_id)


# ---------------------------------------------------------------------- memory
def memory_allocated(device: Any = None) -> int:
    """Return the bytes of the tensors on a GPU."""
    return SIMULATED[index_of(device)].info().used or 0


def max_memory_allocated(device: Any = None) -> int:
    """Return the peak number of bytes of the tensors on a GPU."""
    return SIMULATED[index_of(device)].info().peak or 0


memory_reserved = memory_allocated
max_memory_reserved = max_memory_allocated


def reset_peak_memory_stats(device: Any = None) -> None:
    """Reset the peak to the bytes in use now."""
    SIMULATED[index_of(device)].reset_peak()


reset_accumulated_memory_stats = reset_peak_memory_stats


def memory_stats(device: Any = None) -> OrderedDict[str, int]:
    """Return the statistics that PyTorch's allocators have, as far as they are known."""
    info = SIMULATED[index_of(device)].info()
    figures = OrderedDict[str, int]()
    for kind in ("active_bytes", "allocated_bytes", "reserved_bytes"):
        figures[f"{kind}.all.current"] = info.used or 0
        figures[f"{kind}.all.peak"] = info.peak or 0
    return figures


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Return a GPU's free and total bytes."""
    index = index_of(device)
    total = get_device_properties(index).total_memory
    return max(total - memory_allocated(index), 0), total


def memory_fraction_limit(index: int) -> int | None:
    """Return the bytes to which the program has limited itself on a GPU, or None."""
    limit = SIMULATED[index].limit
    return None if limit == state.SIMULATION.limit else limit


def empty_cache() -> None:
    """Do nothing: nothing is cached."""


# ---------------------------------------------------------------------- random numbers
def manual_seed(seed: int) -> None:
    """Seed the current GPU's generator."""
    generators.DEFAULTS[index_of()].manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed every GPU's generator."""
    for each in generators.DEFAULTS:
        each.manual_seed(int(seed))


def seed() -> None:
    """Seed the current GPU's generator with a seed from the system."""
    generators.DEFAULTS[index_of()].seed()


def initial_seed() -> int:
    """Return the seed of the current GPU's generator."""
    return int(generators.DEFAULTS[index_of()].initial_seed())


def get_rng_state(device: Any = None) -> Any:
    """Return the state of a GPU's generator, as a tensor of bytes on the host."""
    return generators.DEFAULTS[index_of(device)].get_state()


def set_rng_state(new_state: Any, device: Any = None) -> None:
    """Set a GPU's generator to a state that `get_rng_state` returned."""
    generators.DEFAULTS[index_of(device)].set_state(new_state)


def get_rng_state_all() -> list[Any]:
    """Return the state of every GPU's generator."""
    return [each.get_state() for each in generators.DEFAULTS]


def set_rng_state_all(new_states: Any) -> None:
    """Set every GPU's generator to a state."""
    for each, new_state in zip(generators.DEFAULTS, new_states, strict=True):
        each.set_state(new_state)


# ---------------------------------------------------------------------- mixed precision
def get_amp_supported_dtype() -> list[Any]:
    """Return the types that `torch.autocast` may use as the lower precision."""
    return [torch.float16, torch.bfloat16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Return True: the CPU computes with bfloat16."""
    return True
