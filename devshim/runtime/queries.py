"""Queries about devices: how many there are, which ones, their properties, and which one to use.

Each function asks when it is called: a default argument ``devices=ds.try_all_gpus()`` in your own function would
ask at import, so write ``devices=None`` there and ask inside the function.
"""

from __future__ import annotations

from devshim._compiler_marks import constant_under_compile
from devshim.devices import parsing, platforms
from devshim.devices.device import ALIASES, CPU, Device, kind_of
from devshim.errors import ConversionError, DeviceSpecError
from devshim.registry import current, platform_names, start_failures
from devshim.transfers import engine, observing

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from devshim.contract.backend import Backend
    from devshim.devices.info import DeviceInfo
    from devshim.devices.parsing import DeviceLike

_DTYPES: dict[Backend, tuple[str, ...]] = {}
"""The names of the dtypes of each framework that was asked; a framework has one adapter in a process."""

__all__ = ["describe", "device_count", "devices", "require", "try_all_gpus", "try_gpu"]


def device_count(kind: str = "gpu") -> int:
    """Return how many devices of a kind the current framework has, simulated ones included.

    Args:
        kind: ``"gpu"``, ``"cpu"``, ``"tpu"``, ...; or a platform such as ``"mps"``, for the GPUs of that platform
            (``"cuda"`` and ``"rocm"`` mean the same).

    Returns:
        The number of devices; 0 without a driver, a build with GPU support, or a GPU. Nothing is
        allocated, no context is created, and only the current framework is asked.

    Raises:
        DeviceSpecError: ``kind`` is not the name of a kind.
        BackendNotFoundError: No framework is chosen.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.device_count("cpu")
        1
        >>> with ds.simulate(2):
        ...     print(ds.device_count())
        2
    """
    canonical = _kind(kind)
    backend = current.current()
    if observing.ACTIVE is not None:  # a device is made only for an `explain`
        observing.show_call(backend, "device_count", Device(canonical))
    return _count(backend, kind, canonical)


def _count(backend: Backend, kind: str, canonical: str) -> int:
    """Return the number of devices of a kind; 0 if its name is a platform that the GPUs are not of."""
    platform = platforms.name_in(kind) if canonical == "gpu" and kind != "gpu" else None
    if platform is not None and not platform_names.is_of_platform(backend, platform):
        return 0
    return backend.count(canonical)


def devices(kind: str | None = None) -> list[Device]:
    """Return the devices of the current framework, the host first.

    Args:
        kind: Only devices of this kind, as for `device_count`; without it, all.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> with ds.simulate(2):
        ...     print(ds.devices())
        [Device('cpu'), Device('gpu', 0), Device('gpu', 1)]
    """
    backend = current.current()
    observing.show_call(backend, "devices")
    kinds = ["cpu", *backend.kinds()] if kind is None else [kind]
    return [Device(each, i) for each in kinds for i in range(_count(backend, each, _kind(each)))]


@constant_under_compile
def describe(device: DeviceLike) -> DeviceInfo:
    """Return a device's properties: model name, memory, compute capability, and whether it is simulated.

    Raises:
        DeviceNotFoundError: The current framework does not have it.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> with ds.simulate(2, memory="4GiB"):
        ...     info = ds.describe("gpu:1")
        >>> info.simulated, info.total_memory
        (True, 4294967296)
    """
    backend = current.current()
    target = engine.require(backend, parsing.device_of_argument(device))
    observing.show_call(backend, "describe", target)
    from dataclasses import replace

    info = start_failures.ask_device(backend, target, backend.describe)
    return replace(info, platform=_platform(backend, target), dtypes=info.dtypes or _dtypes(backend, target))


def _platform(backend: Backend, device: Device) -> str:
    if device is CPU:
        return "cpu"
    return platform_names.platform_of(backend) if device.kind == "gpu" else backend.platform(device.kind)


def _dtypes(backend: Backend, device: Device) -> tuple[str, ...]:
    """Return the names of the framework's dtypes that a device can hold."""
    lacking = frozenset() if device is CPU else backend.dtypes_lacking
    found = _DTYPES.get(backend)
    if found is None:  # they are the same for all devices: a thousand are described in some milliseconds
        from devshim.devices.dtypes import DTYPES

        found = _DTYPES[backend] = tuple(name for name in DTYPES if _has_dtype(backend, name))
    return tuple(name for name in found if name not in lacking) if lacking else found


def _has_dtype(backend: Backend, name: str) -> bool:
    try:
        backend.dtype(name)
    except ConversionError:
        return False
    return True


def require(device: DeviceLike) -> Device:
    """Return the device if the current framework has it.

    Raises:
        DeviceNotFoundError: It does not; the error says how many there are, and why.
        DeviceSpecError: ``device`` does not name a device.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.require("cpu")
        Device('cpu')
    """
    backend, target = current.current(), parsing.device_of_argument(device)
    observing.show_call(backend, "device_count", target)
    return engine.require(backend, target)


def try_gpu(i: int = 0) -> Device:
    """Return the i-th GPU if there is one, and the CPU otherwise.

    Args:
        i: Which GPU, from 0.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> with ds.simulate(1):
        ...     print(ds.try_gpu(), ds.try_gpu(7))
        gpu:0 cpu
    """
    backend = current.current()
    wanted = Device("gpu", i)
    found = wanted if wanted.index < backend.count("gpu") else CPU
    observing.show_call(backend, "try_gpu", wanted)
    return found


def try_all_gpus() -> list[Device]:
    """Return all GPUs, or ``[cpu]`` without a GPU; never an empty list.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> with ds.simulate(2):
        ...     print(ds.try_all_gpus())
        [Device('gpu', 0), Device('gpu', 1)]
    """
    return devices("gpu") or [CPU]


def _kind(kind: str) -> str:
    found = kind_of(kind)
    if found is None:
        from devshim.errors.formatting import show

        problem = f"no device kind is called {show(kind)}"
        raise DeviceSpecError(problem, f"the kinds are {', '.join(dict.fromkeys(ALIASES))}")
    return found
