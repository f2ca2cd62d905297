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

# Made by tests/typing/stub.py of devshim/__init__.py and devshim/_lazy.py: run `python tests/typing/stub.py --write`.

from devshim import random as random
from devshim.checkpoints.api import load as load
from devshim.checkpoints.api import save as save
from devshim.checkpoints.rows import Rows as Rows
from devshim.collectives.all_reduce import all_reduce_ as all_reduce_
from devshim.collectives.data_parallel import data_parallel as data_parallel
from devshim.collectives.parallel import parallel as parallel
from devshim.collectives.split import broadcast as broadcast
from devshim.collectives.split import gather as gather
from devshim.collectives.split import replicate as replicate
from devshim.collectives.split import split as split
from devshim.devices.device import Device as Device
from devshim.devices.device import cpu as cpu
from devshim.devices.device import gpu as gpu
from devshim.devices.info import BackendInfo as BackendInfo
from devshim.devices.info import DeviceInfo as DeviceInfo
from devshim.devices.info import MemoryInfo as MemoryInfo
from devshim.devices.parsing import device as device
from devshim.errors import AlreadyStartedError as AlreadyStartedError
from devshim.errors import ArgumentError as ArgumentError
from devshim.errors import BackendBrokenError as BackendBrokenError
from devshim.errors import BackendConflictError as BackendConflictError
from devshim.errors import BackendError as BackendError
from devshim.errors import BackendNotFoundError as BackendNotFoundError
from devshim.errors import CheckpointError as CheckpointError
from devshim.errors import ConversionError as ConversionError
from devshim.errors import CopyNeededError as CopyNeededError
from devshim.errors import DeviceError as DeviceError
from devshim.errors import DeviceFailedError as DeviceFailedError
from devshim.errors import DeviceMismatchError as DeviceMismatchError
from devshim.errors import DeviceNotFoundError as DeviceNotFoundError
from devshim.errors import DeviceSpecError as DeviceSpecError
from devshim.errors import DevshimError as DevshimError
from devshim.errors import HostLostError as HostLostError
from devshim.errors import NotATensorError as NotATensorError
from devshim.errors import OutOfMemoryError as OutOfMemoryError
from devshim.errors import PlacementError as PlacementError
from devshim.errors import RankFailedError as RankFailedError
from devshim.errors import RankLateError as RankLateError
from devshim.errors import RanksDisagreeError as RanksDisagreeError
from devshim.errors import SimulationError as SimulationError
from devshim.errors import TracingError as TracingError
from devshim.errors import TransferError as TransferError
from devshim.errors import UnsupportedError as UnsupportedError
from devshim.errors import WorldError as WorldError
from devshim.interop.convert import convert as convert
from devshim.interop.leaf_values import assign as assign
from devshim.interop.leaf_values import leaves as leaves
from devshim.monitoring.explain import explain as explain
from devshim.monitoring.guard import TransferWarning as TransferWarning
from devshim.monitoring.guard import guard as guard
from devshim.monitoring.ledger import Transfer as Transfer
from devshim.monitoring.ledger import TransferLog as TransferLog
from devshim.monitoring.ledger import transfers as transfers
from devshim.monitoring.metric_log import MetricLog as MetricLog
from devshim.placement.placement import Placement as Placement
from devshim.placement.placement import placement_of as placement_of
from devshim.registry.current import backends as backends
from devshim.registry.current import framework as framework
from devshim.registry.current import use as use
from devshim.registry.current import using as using
from devshim.runtime.batch_size import is_out_of_memory as is_out_of_memory
from devshim.runtime.batch_size import shrink_batch as shrink_batch
from devshim.runtime.local_gpu import local_gpu as local_gpu
from devshim.runtime.memory import empty_cache as empty_cache
from devshim.runtime.memory import memory as memory
from devshim.runtime.memory import memory_policy as memory_policy
from devshim.runtime.memory import set_visible_devices as set_visible_devices
from devshim.runtime.memory import synchronize as synchronize
from devshim.runtime.prefetching import prefetch as prefetch
from devshim.runtime.queries import describe as describe
from devshim.runtime.queries import device_count as device_count
from devshim.runtime.queries import devices as devices
from devshim.runtime.queries import require as require
from devshim.runtime.queries import try_all_gpus as try_all_gpus
from devshim.runtime.queries import try_gpu as try_gpu
from devshim.runtime.running import run as run
from devshim.runtime.scopes import on as on
from devshim.runtime.scopes import require_same_device as require_same_device
from devshim.runtime.scopes import same_device as same_device
from devshim.runtime.scopes import set_device as set_device
from devshim.runtime.timing import timer as timer
from devshim.simulation.memory import Fault as Fault
from devshim.simulation.simulate import simulate as simulate
from devshim.tensors.creation import arange as arange
from devshim.tensors.creation import empty as empty
from devshim.tensors.creation import empty_like as empty_like
from devshim.tensors.creation import eye as eye
from devshim.tensors.creation import full as full
from devshim.tensors.creation import full_like as full_like
from devshim.tensors.creation import linspace as linspace
from devshim.tensors.creation import ones as ones
from devshim.tensors.creation import ones_like as ones_like
from devshim.tensors.creation import zeros as zeros
from devshim.tensors.creation import zeros_like as zeros_like
from devshim.tensors.default_dtypes import set_default_dtype as set_default_dtype
from devshim.tensors.from_values import asarray as asarray
from devshim.tensors.from_values import from_numpy as from_numpy
from devshim.tensors.gradients import stop_gradient as stop_gradient
from devshim.tensors.gradients import value_and_grad as value_and_grad
from devshim.tensors.namespaces import namespace as namespace
from devshim.tensors.placing import copy as copy
from devshim.tensors.placing import device_of as device_of
from devshim.tensors.placing import dtype_of as dtype_of
from devshim.tensors.placing import place as place
from devshim.tensors.placing import to_numpy as to_numpy
from devshim.trees.not_moved import NotMovedWarning as NotMovedWarning
from devshim.world.current import world as world
from devshim.world.launcher import launch as launch
from devshim.world.world import World as World

__version__: str

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
