"""Asking for devices: how many there are, which, what they are, and which to take.

Everything is evaluated when it is called: a default argument ``devices=ds.try_all_gpus()`` of your own would
still ask at import, so write ``devices=None`` there and ask inside.
"""

from __future__ import annotations

from devshim import _context, _explain, _registry, _spec, _starting, _transfer
from devshim.device import ALIASES, CPU, Device, kind_of
from devshim.errors import DeviceSpecError

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from devshim._spec import DeviceLike
    from devshim.info import DeviceInfo

__all__ = ["describe", "device_count", "devices", "require", "try_all_gpus", "try_gpu"]


def device_count(kind: str = "gpu") -> int:
    """Return how many devices of a kind the current framework has, simulated ones included.

    Args:
        kind: ``"gpu"`` (``"cuda"`` and ``"rocm"`` mean the same), ``"cpu"``, ``"tpu"``, ...

    Returns:
        0 where there are none: for want of a driver, a build with GPU support, or a card.  Nothing is allocated,
        no context is made, and no framework but the current one is asked.

    Raises:
        DeviceSpecError: No kind is called that.
        BackendNotFoundError: No framework is chosen.
    """
    canonical = _kind(kind)
    backend = _context.current()
    hook = _explain.HOOK
    if hook is not None:
        hook(backend, "device_count", Device(canonical))
    return backend.count(canonical)


def devices(kind: str | None = None) -> list[Device]:
    """Return the devices of the current framework, the host first.

    Args:
        kind: Only devices of this kind; without it all.
    """
    backend = _context.current()
    hook = _explain.HOOK
    if hook is not None:
        hook(backend, "devices")
    kinds = ["cpu", *backend.kinds()] if kind is None else [_kind(kind)]
    return [Device(each, i) for each in kinds for i in range(backend.count(each))]


@_registry.settled_when_compiled
def describe(device: DeviceLike) -> DeviceInfo:
    """Return what a device is: model name, memory, compute capability, and whether it is simulated.

    Raises:
        DeviceNotFoundError: The current framework does not have it.
    """
    backend = _context.current()
    target = _transfer.require(backend, _spec.device(device))
    hook = _explain.HOOK
    if hook is not None:
        hook(backend, "describe", target)
    return _starting.ask(backend, target, backend.describe)


def require(device: DeviceLike) -> Device:
    """Return the device if the current framework has it.

    Raises:
        DeviceNotFoundError: It does not; says how many there are, and why.
        DeviceSpecError: ``device`` names nothing.
    """
    backend, target = _context.current(), _spec.device(device)
    hook = _explain.HOOK
    if hook is not None:
        hook(backend, "device_count", target)
    return _transfer.require(backend, target)


def try_gpu(i: int = 0) -> Device:
    """Return the i-th GPU if there is one, else the CPU.

    Args:
        i: Which GPU, from 0.
    """
    backend = _context.current()
    wanted = Device("gpu", i)
    found = wanted if wanted.index < backend.count("gpu") else CPU
    hook = _explain.HOOK
    if hook is not None:
        hook(backend, "try_gpu", wanted)
    return found


def try_all_gpus() -> list[Device]:
    """Return all GPUs, or ``[cpu]`` where there are none: never an empty list."""
    return devices("gpu") or [CPU]


def _kind(kind: str) -> str:
    found = kind_of(kind)
    if found is None:
        from devshim._show import show

        told = f"no device kind is called {show(kind)}"
        raise DeviceSpecError(told, f"the kinds are {', '.join(dict.fromkeys(ALIASES))}")
    return found


for _public in (describe, device_count, devices, require, try_all_gpus, try_gpu):
    _public.__module__ = "devshim"
