"""The functions of ``paddle.device.cuda`` and ``paddle.cuda``: counts, properties, memory, streams and events.

The work of a simulated GPU is done when the call returns, so a stream has nothing to wait for.
"""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any

import paddle

from devshim.devices import host
from devshim.devices.device import Device
from devshim.simulation.properties import CAPABILITY, MULTIPROCESSORS
from devshim_backends._paddle.devices import core
from devshim_backends._paddle.simulation.native_names import autocast, names

if TYPE_CHECKING:
    from collections.abc import Iterator

_device = paddle.device


class _gpuDeviceProperties:
    """The properties of a simulated GPU, with the names and the text that Paddle gives them."""

    major, minor = CAPABILITY
    multi_processor_count = MULTIPROCESSORS
    is_integrated = is_multi_gpu_board = 0

    def __init__(self, name: str, total_memory: int) -> None:
        self.name, self.total_memory = name, total_memory

    def __repr__(self) -> str:
        return (
            f"_gpuDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory >> 20}MB, multi_processor_count={self.multi_processor_count})"
        )


def device_count() -> int:
    """Return the number of simulated GPUs."""
    return int(names.backend().simulated)


def get_device_properties(device: Any = None) -> _gpuDeviceProperties:
    """Return the properties of a simulated GPU; one without a limit has as much memory as the host."""
    index = names.index_of(device)
    info = names.backend().describe(Device("gpu", index))
    memory = info.total_memory if info.total_memory is not None else host.memory().total or 0
    return _gpuDeviceProperties(info.name, memory)


def get_device_name(device: Any = None) -> str:
    """Return the name of a simulated GPU."""
    return get_device_properties(device).name


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """Return the compute capability that programs see."""
    found = get_device_properties(device)
    return found.major, found.minor


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Return the free and the total bytes of a simulated GPU."""
    index = names.index_of(device)
    total = get_device_properties(index).total_memory
    return max(total - (names.backend().memory(Device("gpu", index)).used or 0), 0), total


def synchronize(device: Any = None) -> None:
    """Do nothing: all work of a simulated GPU is done when a call returns."""
    if device is not None and not isinstance(device, paddle.CPUPlace) and device != "cpu":
        names.index_of(device)


def _synchronize_gpu(device: Any = None) -> None:
    """Check that there is a GPU; Paddle's `synchronize` of all kinds of devices does not."""
    synchronize(names.current_index() if device is None else device)


def empty_cache() -> None:
    """Do nothing: simulated GPUs have no cache."""


def _index(device: Any = None, op_name: str = "") -> int:
    return names.index_of(device)


# ---------------------------------------------------------------------- streams and events
def _wait(waiting: Any) -> None:
    """Do nothing, as ``synchronize`` of a stream or an event: its work is done."""


class Event:
    """An event on a simulated GPU, which has happened as soon as it is recorded."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        self._time: float | None = None

    def record(self, stream: Any = None) -> None:
        """Record the time."""
        self._time = time.perf_counter()

    def query(self) -> bool:
        """Return True."""
        return True

    synchronize = _wait

    def elapsed_time(self, end_event: Event) -> float:
        """Return the milliseconds between this event and another one."""
        if self._time is None or end_event._time is None:
            msg = "both events must be recorded before their time is read"
            raise ValueError(msg)
        return (end_event._time - self._time) * 1000


_NUMBERS = itertools.count(1)
_CURRENT: dict[int, int] = {}
"""The numbers of the streams that are current, by the index of their GPU; 0 is a GPU's default stream."""


class Stream:
    """A stream of a simulated GPU, which is always empty."""

    def __init__(self, device: Any = None, priority: int = 2, **ignored: Any) -> None:
        self._index = names.index_of(device)
        self._number = next(_NUMBERS)
        self.device = names.gpu_place(self._index)
        self.place = self.device

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (self._index, self._number) == (other._index, other._number)

    def __hash__(self) -> int:
        return hash((self._index, self._number))

    def wait_event(self, event: Event) -> None:
        """Do nothing."""

    def wait_stream(self, stream: Stream) -> None:
        """Do nothing."""

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event, and return it."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def query(self) -> bool:
        """Return True."""
        return True

    synchronize = _wait

    def __repr__(self) -> str:
        return f"<paddle.device.Stream device={self.device} (simulated)>"


class stream_guard:
    """A block whose work is on a stream: the current stream of its GPU is another one."""

    def __init__(self, stream: Stream | None = None) -> None:
        self.stream = stream
        self._before: Stream | None = None

    def __enter__(self) -> None:
        if self.stream is not None:
            self._before = set_stream(self.stream)

    def __exit__(self, *failure: object) -> None:
        if self._before is not None:
            set_stream(self._before)


def current_stream(device: Any = None) -> Stream:
    """Return the current stream of a simulated GPU."""
    stream = Stream(device)
    stream._number = _CURRENT.get(stream._index, 0)
    return stream


def set_stream(stream: Stream) -> Stream:
    """Make a stream the current one of its GPU, and return the one before."""
    before = current_stream(stream.device)
    _CURRENT[stream._index] = stream._number
    return before


def forget_streams() -> None:
    """Make the default stream of each GPU the current one again."""
    _CURRENT.clear()


# ---------------------------------------------------------------------- what is replaced
_EVERYWHERE = ("synchronize", "current_stream", "set_stream", "stream_guard", "Stream", "Event")
_QUERIES = (
    *("get_device_properties", "get_device_name", "get_device_capability", "empty_cache", "mem_get_info"),
    *("device_count", "synchronize", "current_stream", "stream_guard", "Stream", "Event"),
)
_MEMORY = (
    *("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"),
    *("reset_max_memory_allocated", "reset_max_memory_reserved"),
)


def functions() -> dict[Any, Any]:
    """Return Paddle's functions that read the index of a GPU, and what is refused -> their replacements."""
    indices = {
        getattr(module, name): _index
        for module, name in ((_device.cuda, "extract_cuda_device_id"), (_device, "extract_device_id"))
        if hasattr(module, name)
    }
    return {**indices, **autocast.functions()}


def attributes() -> Iterator[tuple[Any, str, Any]]:
    """Yield the attributes of the modules for CUDA to replace: owner, name and new value."""
    for module in (_device.cuda, getattr(paddle, "cuda", None)):
        for name in _QUERIES if module is not None else ():
            if hasattr(module, name):
                yield module, name, _synchronize_gpu if name == "synchronize" else globals()[name]
        if module is not None and not names.backend().simulated:  # Paddle's own say that it is built for the CPU only
            yield from ((module, name, _index) for name in _MEMORY if hasattr(module, name))
    for name in (*_EVERYWHERE, "get_device_properties", "get_device_name", "get_device_capability", "empty_cache"):
        if hasattr(_device, name):
            yield _device, name, globals()[name]
    if hasattr(_device, "stream"):
        yield _device, "stream", stream_guard
    yield core, "get_cuda_device_count", device_count
    yield core, "get_cuda_current_device_id", _index
