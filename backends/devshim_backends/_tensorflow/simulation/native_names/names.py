"""The translation between TensorFlow's names of GPUs and the logical CPUs that simulate them.

``GPU:1`` is ``CPU:2``, in any spelling and with or without a job: see `logical_name` and `shown_name`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from devshim.errors import UnsupportedError
from devshim_backends._tensorflow.failures import MissingDeviceError
from devshim_backends._tensorflow.simulation.native_names.internals.clusters import CLUSTER

if TYPE_CHECKING:
    from devshim.simulation.patching import Patches
    from devshim_backends._tensorflow.simulation.simulate import TensorflowSimulation

__all__ = [
    "all_devices",
    "index_of_gpu",
    "install",
    "is_of_this_process",
    "is_simulated_gpu",
    "logical_name",
    "native_text",
    "read_name",
    "refuse_second_cpu",
    "shown_name",
    "shown_text",
]

_ALL_DEVICES = re.compile(r"(All available devices \[)/job:[^\]]*\]")
_FULL_NAME = re.compile(r"(?:/job:[^\s,]*)?/device:CPU:\d+")
_NO_CUDA = " The requested device appears to be a GPU, but CUDA is not enabled."
"""The end of an error that only builds for CPUs write."""

_backend: TensorflowSimulation


def install(patches: Patches, backend: TensorflowSimulation) -> None:
    """Read the number of GPUs from an adapter, and show their names in TensorFlow's errors."""
    global _backend
    _backend = backend
    shown_name.cache_clear()
    patches.replace(tf.errors.OpError, "__init__", _wrap_error(tf.errors.OpError.__init__))


def native_text(name: Any) -> str | None:
    """Return the text of a device that a program passed to TensorFlow, or None if it is not a device's name."""
    if isinstance(name, (tf.config.LogicalDevice, tf.config.PhysicalDevice)):
        return str(name.name)
    if hasattr(name, "to_string"):
        return str(name.to_string())
    return name if isinstance(name, str) else None


def logical_name(name: str) -> str:
    """Return the name that TensorFlow's C++ code knows: ``/device:CPU:2`` for ``GPU:1``; other names are unchanged.

    A GPU of a process that TensorFlow does not know is unchanged: TensorFlow's error names it. All names are unchanged
    while all GPUs are hidden.

    Raises:
        MissingDeviceError: The GPU does not exist.
    """
    kind, index, given = read_name(name)
    if kind not in ("GPU", "TPU", "XPU"):  # for others, see `soft_placement`
        return name
    count = _gpus_for(given)
    if count is None or not _backend.simulated:  # without GPUs, TensorFlow places operators, or refuses the name
        return name
    if kind != "GPU" or index >= count:
        raise _missing_device_error(name, count)
    return given.replace(device_type="CPU", device_index=index + 1).to_string()  # type: ignore[no-any-return]


def _gpus_for(given: Any) -> int | None:
    """Return the number of GPUs that a device's name can mean; None if TensorFlow does not know its process.

    A name without a job means a GPU of the process that runs the function: a coordinator may have none itself.
    """
    here = _backend.count("gpu")
    if given.job is None:
        return max((here, *CLUSTER.others.values()))
    process = CLUSTER.process_of(given)
    return here if process == CLUSTER.here else CLUSTER.others.get(process)


def index_of_gpu(name: str) -> int | None:
    """Return the index of the simulated GPU with this name, or None if it does not exist or the name lacks an index."""
    kind, index, given = read_name(name)
    if kind != "GPU" or given.device_index is None or CLUSTER.process_of(given) != CLUSTER.here:
        return None
    return index if index < _backend.count("gpu") else None


def is_of_this_process(name: str) -> bool:
    """Return True for the name of a device of this process, and not of another one in its cluster."""
    return CLUSTER.process_of(read_name(name)[2]) == CLUSTER.here


def is_simulated_gpu(name: str) -> bool:
    """Return True for the name of a logical CPU that is a simulated GPU, which is ``/CPU:1`` for the first one."""
    kind, index, _ = read_name(name)
    return kind == "CPU" and index > 0 and _backend.simulated > 0


def refuse_second_cpu(name: str) -> None:
    """Refuse a program's ``/CPU:1``, which would be a simulated GPU; the full name comes from TensorFlow's C++ code.

    Raises:
        UnsupportedError: The name is that of a simulated GPU's CPU.
    """
    _, index, given = read_name(name)
    if is_simulated_gpu(name) and given.job is None:
        msg = f"TensorFlow has no second CPU {name!r} here: its logical CPUs are the simulated GPUs"
        raise UnsupportedError(msg, f'write "/CPU:0" for the host, or "/GPU:{index - 1}" for the GPU')


def _missing_device_error(name: str, count: int) -> MissingDeviceError:
    process = "" if is_of_this_process(name) else CLUSTER.process_of(read_name(name)[2])
    known = [f"{process}/GPU:{index}" for index in range(count)]
    return MissingDeviceError(
        f"TensorFlow has no device {name!r}, and would compute on the CPU; "
        f"the simulated GPUs are: {', '.join(known) or 'none'}",
        f'with tf.device("{known[-1] if known else f"{process}/CPU:0"}"):',
    )


@lru_cache(maxsize=256)
def read_name(name: str) -> tuple[str | None, int, Any]:
    """Return a name's type, its index, and the whole of it; TensorFlow itself refuses what it cannot read."""
    try:
        given = tf.DeviceSpec.from_string(name)
    except ValueError:
        return None, 0, None
    return given.device_type, given.device_index or 0, given


@lru_cache(maxsize=256)
def shown_name(name: str) -> str:
    """Return the name that a program sees: ``GPU:1`` for the logical CPU ``CPU:2``."""
    _, index, given = read_name(name)
    if not is_simulated_gpu(name):
        return name
    return given.replace(device_type="GPU", device_index=index - 1).to_string()  # type: ignore[no-any-return]


def shown_text(text: str) -> str:
    """Return a text of TensorFlow with the names of devices that a program sees."""
    text = _ALL_DEVICES.sub(lambda found: f"{found[1]}{all_devices()}]", text)
    return _FULL_NAME.sub(lambda name: shown_name(name[0]), text.replace(_NO_CUDA, ""))


def all_devices() -> str:
    """Return the names of all devices that a program sees, as TensorFlow's errors list them."""
    counts = {CLUSTER.here: _backend.count("gpu"), **CLUSTER.others}
    return ", ".join(
        f"{process}/device:{name}"
        for process, count in counts.items()
        for name in ("CPU:0", *(f"GPU:{index}" for index in range(count)))
    )


def _wrap_error(create: Any) -> Any:
    """Return the ``__init__`` of TensorFlow's errors, which shows the names of devices that a program sees."""

    def init(self: Any, node_def: Any, op: Any, message: Any, *args: Any) -> None:
        create(self, node_def, op, shown_text(message) if isinstance(message, str) else message, *args)

    return init
