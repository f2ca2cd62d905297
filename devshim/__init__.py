"""One Device/Placement API that behaves the same on PyTorch, TensorFlow, MXNet, PaddlePaddle, JAX and NumPy.

>>> import devshim as ds
>>> ds.use("numpy")
>>> ds.device("cuda:1")
Device('gpu', 1)

The public names, by subject; ``help(ds.place)`` explains one:

    frameworks       use using backends framework
    devices          device Device cpu gpu device_count devices describe require try_gpu try_all_gpus
                     local_gpu set_visible_devices DeviceInfo BackendInfo
    tensors          place copy device_of dtype_of to_numpy from_numpy convert NotMovedWarning
    creation         asarray zeros ones full empty arange linspace eye
                     zeros_like ones_like full_like empty_like random set_default_dtype
    array API        namespace
    gradients        value_and_grad stop_gradient
    default device   on set_device run same_device require_same_device
    several devices  split gather broadcast replicate all_reduce_ parallel data_parallel
    leaves           leaves assign
    several ranks    launch world World
    placement        Placement placement_of
    checkpoints      save load Rows
    transfers        transfers TransferLog Transfer guard TransferWarning MetricLog explain
    running          synchronize memory MemoryInfo empty_cache memory_policy
                     shrink_batch is_out_of_memory prefetch timer
    simulated GPUs   simulate Fault
    errors           DevshimError, and below it ArgumentError NotATensorError BackendError BackendNotFoundError
                     BackendBrokenError BackendConflictError DeviceError DeviceSpecError DeviceNotFoundError
                     DeviceFailedError DeviceMismatchError PlacementError CopyNeededError ConversionError
                     CheckpointError TransferError TracingError SimulationError AlreadyStartedError OutOfMemoryError
                     UnsupportedError WorldError RankFailedError RankLateError RanksDisagreeError HostLostError

Importing devshim imports no framework, not even NumPy. Devices and errors are available from the start. Each other
name is loaded when it is first used, and all of them are loaded together with the first framework.
"""

from devshim import _lazy
from devshim._version import __version__
from devshim.devices import device as _device
from devshim.devices.device import Device, cpu, gpu
from devshim.devices.parsing import device
from devshim.errors import (
    AlreadyStartedError,
    ArgumentError,
    BackendBrokenError,
    BackendConflictError,
    BackendError,
    BackendNotFoundError,
    CheckpointError,
    ConversionError,
    CopyNeededError,
    DeviceError,
    DeviceFailedError,
    DeviceMismatchError,
    DeviceNotFoundError,
    DeviceSpecError,
    DevshimError,
    HostLostError,
    NotATensorError,
    OutOfMemoryError,
    PlacementError,
    RankFailedError,
    RankLateError,
    RanksDisagreeError,
    SimulationError,
    TracingError,
    TransferError,
    UnsupportedError,
    WorldError,
)

__all__ = [
    "AlreadyStartedError",
    "ArgumentError",
    "BackendBrokenError",
    "BackendConflictError",
    "BackendError",
    "BackendInfo",
    "BackendNotFoundError",
    "CheckpointError",
    "ConversionError",
    "CopyNeededError",
    "Device",
    "DeviceError",
    "DeviceFailedError",
    "DeviceInfo",
    "DeviceMismatchError",
    "DeviceNotFoundError",
    "DeviceSpecError",
    "DevshimError",
    "Fault",
    "HostLostError",
    "MemoryInfo",
    "MetricLog",
    "NotATensorError",
    "NotMovedWarning",
    "OutOfMemoryError",
    "Placement",
    "PlacementError",
    "RankFailedError",
    "RankLateError",
    "RanksDisagreeError",
    "Rows",
    "SimulationError",
    "TracingError",
    "Transfer",
    "TransferError",
    "TransferLog",
    "TransferWarning",
    "UnsupportedError",
    "World",
    "WorldError",
    "__version__",
    "all_reduce_",
    "arange",
    "asarray",
    "assign",
    "backends",
    "broadcast",
    "convert",
    "copy",
    "cpu",
    "data_parallel",
    "describe",
    "device",
    "device_count",
    "device_of",
    "devices",
    "dtype_of",
    "empty",
    "empty_cache",
    "empty_like",
    "explain",
    "eye",
    "framework",
    "from_numpy",
    "full",
    "full_like",
    "gather",
    "gpu",
    "guard",
    "is_out_of_memory",
    "launch",
    "leaves",
    "linspace",
    "load",
    "local_gpu",
    "memory",
    "memory_policy",
    "namespace",
    "on",
    "ones",
    "ones_like",
    "parallel",
    "place",
    "placement_of",
    "prefetch",
    "random",
    "replicate",
    "require",
    "require_same_device",
    "run",
    "same_device",
    "save",
    "set_default_dtype",
    "set_device",
    "set_visible_devices",
    "shrink_batch",
    "simulate",
    "split",
    "stop_gradient",
    "synchronize",
    "timer",
    "to_numpy",
    "transfers",
    "try_all_gpus",
    "try_gpu",
    "use",
    "using",
    "value_and_grad",
    "world",
    "zeros",
    "zeros_like",
]

_device.FRAMEWORKS = _lazy.Later("devshim.registry.native_devices")
_device.SCOPES = _lazy.Later("devshim.runtime.scopes")
_lazy.hide_packages()
for _here in (device, Device, cpu, gpu):
    _lazy.publish(_here)


def __getattr__(name: str) -> object:
    return _lazy.load(name)


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]


def load_ipython_extension(shell: object) -> None:
    """Add the magics ``%devices``, ``%use`` and ``%simulate``: called by ``%load_ext devshim``."""
    from devshim.jupyter import extension

    extension.load(shell)


def unload_ipython_extension(shell: object) -> None:
    """Remove the magics: called by ``%unload_ext devshim``."""
    from devshim.jupyter import extension

    extension.unload(shell)
