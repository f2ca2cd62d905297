"""The number of simulated GPUs, this thread's current GPU, and the GPU that a device-like argument names."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from devshim.errors import DevshimError, SimulationError
from devshim.registry import missing_devices
from devshim_backends._torch.failures import ForkedProcessError, HiddenDevicesError, MissingDeviceError

NAME = "sim"
"""The type of a simulated GPU's ``torch.device``."""
TYPES = {NAME}
"""The types that name a simulated GPU: also ``cuda`` while native names are on."""


class _Simulation:
    """The current state of the simulation.

    Attributes:
        count: The number of GPUs; 0 in a forked process that cannot use those of its parent, and while all are hidden.
        is_on: True while PyTorch is patched: also while all GPUs are hidden.
        count_of_parent: The number of GPUs of the parent of such a process, and otherwise 0.
        limit: The bytes of each, or None.
        on_leaving_first_gpu: Called the first time that a thread makes another GPU than the first its current one.
    """

    __slots__ = ("count", "count_of_parent", "is_on", "limit", "on_leaving_first_gpu")

    def __init__(self) -> None:
        self.count = self.count_of_parent = 0
        self.is_on = False
        self.limit: int | None = None
        self.on_leaving_first_gpu: Callable[[], None] | None = None


SIMULATION = _Simulation()


class _Current(threading.local):
    """A thread's own current GPU, as in CUDA.

    Attributes:
        index: Its index; read it by `current`, because a backward pass changes it when it is asked.
        follow: Changes it during a backward pass (see `backward_nodes`).
    """

    index = 0
    follow: Callable[[], None] | None = None


CURRENT = _Current()


def current() -> int:
    """Return the index of this thread's current GPU."""
    follow = CURRENT.follow
    if follow is not None:
        follow()
    index = CURRENT.index
    return index if index < SIMULATION.count else 0  # it was set while there were more GPUs


def make_current(index: int) -> int:
    """Make a GPU this thread's current one, and return the previous one; a negative index changes nothing."""
    before = current()
    if index >= 0:
        CURRENT.index = _require_index(index)
        if index:
            leave_first_gpu()
    return before


def leave_first_gpu() -> None:
    """Prepare PyTorch for a current GPU that is not the first, unless that has happened."""
    callback, SIMULATION.on_leaving_first_gpu = SIMULATION.on_leaving_first_gpu, None
    if callback is not None:
        callback()


def require_simulated(index: int) -> int:
    """Return the index of a tensor's GPU if it is simulated; otherwise raise."""
    if 0 <= index < SIMULATION.count:
        return index
    raise removed_gpu_error(index)


def shown_device(index: int) -> Any:
    """Return the ``torch.device`` that a program sees: ``sim:1``, or ``cuda:1`` while native names are on."""
    return torch.device("cuda" if "cuda" in TYPES else NAME, index)


def gpu_name(index: int) -> str:
    """Return the name of a GPU in an error message; PyTorch's own name for it is ``sim:1``."""
    return f"cuda:{index}" if "cuda" in TYPES else f"gpu:{index} (simulated)"


def shown_count() -> int:
    """Return the number of GPUs that a program sees, also in a forked process that cannot use them."""
    return SIMULATION.count or SIMULATION.count_of_parent


def all_hidden() -> bool:
    """Return True while native names are on and all GPUs are hidden, which to a program is a machine without GPUs."""
    return "cuda" in TYPES and not shown_count()


def return_gpus() -> None:
    """Let a forked process use the GPUs of its parent again; nothing changes in another process."""
    SIMULATION.count, SIMULATION.count_of_parent = shown_count(), 0


def removed_gpu_error(index: int) -> DevshimError:
    """Return the error for a tensor whose GPU was removed; raise it if the line that removed the GPU is known."""
    if SIMULATION.count_of_parent:
        return forked_error("CUDA error: initialization error")
    gpu = _removed_gpu(index)
    if gpu is not None:
        gpu.require_shown()
    return missing_gpu_error(index)


def missing_gpu_error(index: int, real_text: str = "CUDA error: invalid device ordinal") -> DevshimError:
    """Return the error for a GPU that is named and does not exist; a RuntimeError, like PyTorch's own.

    Args:
        index: The index of the GPU.
        real_text: How the text of PyTorch's own error begins, which is the first line while native names are on.
    """
    if SIMULATION.count_of_parent:
        return forked_error()
    if all_hidden():
        return missing_devices.all_hidden_error(HiddenDevicesError, "No CUDA GPUs are available")
    number = SIMULATION.count
    reason = f"devshim simulates {number} GPU{'s' * (number != 1)}" if number else "no GPUs are simulated now"
    gpu = _removed_gpu(index)
    if gpu is not None:  # PyTorch names the device of tensors that it makes itself, as in x[0] = 5.0
        reason = f"gpu:{index} was removed at {gpu.removed_at}, and {reason}"
    hint = f"ds.simulate(gpus={index + 1}) adds it, and tensors that were on it can be used again"
    if "cuda" in TYPES and number:
        hint = f"name one from cuda:0 to cuda:{number - 1}, or run the program with devshim run --gpus {index + 1}"
    problem = f"{gpu_name(index)} does not exist (invalid device ordinal): {reason}"
    if "cuda" in TYPES:
        problem = f"{real_text}\n{problem}"
    return MissingDeviceError(problem, hint)


def forked_error(real_text: str = "") -> SimulationError:
    """Return the error for a forked process that uses CUDA although its parent has used it.

    Args:
        real_text: How PyTorch's own error begins, if it is not the one for CUDA's start.
    """
    text = "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' "
    return ForkedProcessError(
        (f"{real_text}\n" if real_text else "") + f"{text}start method",
        'start processes with torch.multiprocessing.get_context("spawn"), and the workers of a DataLoader with '
        'multiprocessing_context="spawn"; a forked process may use tensors on the host',
    )


def _removed_gpu(index: int) -> Any:
    """Return the GPU of an index if it was removed while something was on it; otherwise None."""
    from devshim_backends._torch.simulation.memory import SIMULATED

    return next((gpu for gpu in SIMULATED if gpu.device.index == index and gpu.removed_at is not None), None)


_INDICES: dict[Any, int] = {}
"""Argument that names a GPU -> its index, or -1 for the current one: faster than to inspect the argument."""


def index_of(device: Any = None) -> int:
    """Return the index of the GPU that an argument names: None, or no index, is the current one.

    Raises:
        SimulationError: The GPU does not exist.
        ValueError: The argument is a device of another kind.
    """
    if device is None:
        return _require_index(current())
    index = _INDICES.get(device)
    if index is None:
        index = _INDICES[device] = _parse(device)
    if index < 0:
        index = current()
    return _require_index(index)


def _require_index(index: int) -> int:
    if index < SIMULATION.count:
        return index
    raise missing_gpu_error(index)


def set_types(*names: str) -> None:
    """Let these types of ``torch.device`` name the simulated GPUs."""
    TYPES.clear()
    TYPES.update(names)
    _INDICES.clear()


def _parse(device: Any) -> int:
    if isinstance(device, int):
        return device
    named = torch.device(device)
    if named.type not in TYPES:
        msg = f"Expected a {'cuda' if 'cuda' in TYPES else NAME} device, but got: {named}"
        raise ValueError(msg)
    return -1 if named.index is None else int(named.index)
