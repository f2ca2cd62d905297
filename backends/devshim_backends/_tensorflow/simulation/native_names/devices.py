"""The lists of physical and logical GPUs, and their configuration, with native names.

TensorFlow's own code reads and changes the lists, after the simulated GPUs are added to those of its context. So its
rules and its errors apply: which settings exist, their order, and that it is too late after the first operator.
What a program configures changes the simulated GPUs: a GPU that is hidden is not simulated, and one that is divided
becomes several, each with the memory that the program requested.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensorflow.python.eager import context

from devshim.devices.device import Device
from devshim.errors import UnsupportedError
from devshim.simulation.properties import CAPABILITY
from devshim_backends._tensorflow.simulation.memory import update_variables
from devshim_backends._tensorflow.simulation.native_names.names import (
    index_of_gpu,
    is_of_this_process,
    is_simulated_gpu,
    logical_name,
    shown_name,
)
from devshim_backends._tensorflow.simulation.storage import SIMULATED

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.simulation.patching import Patches
    from devshim_backends._tensorflow.simulation.simulate import TensorflowSimulation

__all__ = ["install", "uninstall"]

_backend: TensorflowSimulation
_contexts: list[Any] = []
"""The contexts whose lists contain the simulated GPUs."""


def install(patches: Patches, backend: TensorflowSimulation) -> None:
    """Add the simulated GPUs to TensorFlow's lists."""
    global _backend
    _backend = backend
    owner = context.Context
    patches.replace(owner, "_initialize_physical_devices", _wrap_start(owner._initialize_physical_devices))
    for name in ("set_visible_devices", "set_logical_device_configuration"):
        patches.replace(owner, name, _wrap_configuration(getattr(owner, name)))
    patches.replace(owner, "get_device_details", _wrap_details(owner.get_device_details))
    patches.replace(owner, "list_logical_devices", _wrap_logical(owner.list_logical_devices))
    patches.replace(owner, "num_gpus", lambda self: _backend.count("gpu"))
    patches.replace(owner, "get_compiler_ir", _wrap_compiler(owner.get_compiler_ir))
    patches.replace(owner, "get_memory_info", _wrap_memory(owner.get_memory_info, _memory_info))
    patches.replace(owner, "reset_memory_stats", _wrap_memory(owner.reset_memory_stats, _reset_peak))


def uninstall() -> None:
    """Remove the simulated GPUs from TensorFlow's lists, and what was configured for them."""
    while _contexts:
        _set_gpus(_contexts[-1], 0)
        _contexts.pop()


# ---------------------------------------------------------------------------------------------------- physical GPUs
def _wrap_start(original: Callable[..., None]) -> Callable[..., None]:
    def start(self: Any, reinitialize: bool = False) -> None:
        original(self, reinitialize)
        known = sum(device.device_type == "GPU" for device in self._physical_devices)
        if known != _backend.physical_gpus:
            if not any(each is self for each in _contexts):
                _contexts.append(self)
            _set_gpus(self, _backend.physical_gpus)

    return start


def _set_gpus(owner: Any, count: int) -> None:
    """Let the lists of a context contain this many GPUs, all of them visible and not divided."""
    gpus = [context.PhysicalDevice(f"/physical_device:GPU:{index}", "GPU") for index in range(count)]
    for name in ("_physical_devices", "_visible_device_list"):
        setattr(owner, name, [each for each in getattr(owner, name) if each.device_type != "GPU"] + gpus)
    for name in ("_memory_growth_map", "_virtual_device_map"):
        devices = getattr(owner, name)
        for each in [each for each in devices if each.device_type == "GPU"]:
            del devices[each]
    owner._memory_growth_map.update(dict.fromkeys(gpus))
    owner._physical_device_to_index = {each: index for index, each in enumerate(owner._physical_devices)}


def _wrap_details(original: Callable[..., Any]) -> Callable[..., Any]:
    def details(self: Any, device: Any) -> Any:
        self._initialize_physical_devices()
        if getattr(device, "device_type", None) != "GPU" or device not in self._physical_devices:
            return original(self, device)
        about = _backend.describe(Device("gpu", 0))
        return {"device_name": about.name, "compute_capability": CAPABILITY}

    return details


# ---------------------------------------------------------------------------------------------------- configuration
def _wrap_configuration(original: Callable[..., None]) -> Callable[..., None]:
    def configure(self: Any, devices: Any, *args: Any, **kwargs: Any) -> None:
        if getattr(devices, "device_type", None) == "CPU" and _backend.simulated:
            msg = "TensorFlow's CPU cannot be divided: its logical CPUs are the simulated GPUs"
            raise UnsupportedError(msg, "run the program without `devshim run`, or leave this line out")
        was = _limits(self)
        original(self, devices, *args, **kwargs)
        limits = _limits(self)
        if limits != was:  # no GPU has computed yet, or TensorFlow would have refused
            _backend.divide([None if limit is None else int(limit * 2**20) for limit in limits])

    return configure


def _limits(owner: Any) -> list[int | None]:
    """Return the limit in MiB of each logical GPU that a program has configured; None for the whole GPU's memory."""
    owner._initialize_physical_devices()
    visible = [each for each in owner._visible_device_list if each.device_type == "GPU"]
    return [
        None if part is None else part.memory_limit
        for each in visible
        for part in owner._virtual_device_map.get(each) or (None,)
    ]


# ---------------------------------------------------------------------------------------------------- logical GPUs
def _wrap_logical(original: Callable[..., Any]) -> Callable[..., Any]:
    def logical(self: Any, device_type: str | None = None) -> Any:
        self._initialize_physical_devices()
        found = map(_show, original(self))
        return [each for each in found if each is not None and device_type in (None, each.device_type)]

    return logical


def _show(device: Any) -> Any:
    """Return a logical device as a program sees it, or None for a logical CPU that is reserved for another GPU."""
    if not is_simulated_gpu(device.name):
        return device
    name = shown_name(device.name)
    known = index_of_gpu(name) is not None or not is_of_this_process(name)
    return context.LogicalDevice(name, "GPU") if known else None


def _wrap_compiler(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement for the method that compiles a function by XLA, which compiles for the CPU."""

    def get_compiler_ir(
        self: Any, device_name: str | None, platform_name: str | None, *args: Any, **kwargs: Any
    ) -> Any:
        device = None if device_name is None else logical_name(device_name)
        return original(self, device, "CPU" if platform_name == "GPU" else platform_name, *args, **kwargs)

    return get_compiler_ir


def _wrap_memory(original: Callable[..., Any], answer: Callable[[int], Any]) -> Callable[..., Any]:
    def ask(self: Any, device: str) -> Any:
        self.ensure_initialized()
        index = index_of_gpu(device)
        if index is not None:
            return answer(index)
        if is_simulated_gpu(device):  # a logical CPU, which the program's machine does not have
            msg = f"No matching devices found for {device!r}"
            raise ValueError(msg)
        return original(self, device)

    return ask


def _memory_info(index: int) -> dict[str, int | None]:
    found = _backend.memory(Device("gpu", index))
    return {"current": found.used, "peak": found.peak}


def _reset_peak(index: int) -> None:
    update_variables(SIMULATED[index])
    SIMULATED[index].reset_peak()
