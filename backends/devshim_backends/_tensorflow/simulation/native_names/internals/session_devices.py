"""The simulated GPUs that a session of ``tf.compat.v1`` selects by its ``ConfigProto``, and their memory."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.eager import context

from devshim.devices.device import Device
from devshim.errors import UnsupportedError
from devshim.simulation.properties import CAPABILITY

if TYPE_CHECKING:
    from devshim_backends._tensorflow.simulation.simulate import TensorflowSimulation

__all__ = ["SessionDevices", "memory_limit", "read_visible"]

_DEFAULT_MEMORY = 16 * 2**30
"""The bytes that TensorFlow reports for a simulated GPU without a limit; it has no value for "unlimited"."""
_NUMBER = re.compile(r"\s*[+-]?\d+\s*", re.ASCII)


def memory_limit(total: int | None, fraction: float) -> int:
    """Return the bytes of a GPU that a session may use; a fraction of 0 means all, and None a GPU without a limit."""
    known = total or _DEFAULT_MEMORY
    return int(known * fraction) if fraction else known


class SessionDevices:
    """The choice of GPUs of all sessions in this process, which must agree.

    Args:
        backend: The adapter.
    """

    def __init__(self, backend: TensorflowSimulation) -> None:
        self._backend = backend
        self._chosen: dict[int, int] = {}
        """TensorFlow's index of a GPU -> the index of the physical GPU."""

    def describe_gpu(self, index: int) -> tuple[int, str]:
        """Return the bytes of a simulated GPU, and its description as TensorFlow writes it."""
        about = self._backend.describe(Device("gpu", index))
        model = about.name.replace(",", " ")  # TensorFlow's readers separate the fields at commas
        numbers = ".".join(map(str, CAPABILITY))
        fields = (f"device: {index}", f"name: {model}", "pci bus id: <undefined>", f"compute capability: {numbers}")
        return memory_limit(about.total_memory, 0), ", ".join(fields)

    def choose(self, given: Any, *, is_of_program: bool) -> int:
        """Return the number of GPUs that a session has.

        Args:
            given: The session's configuration.
            is_of_program: False if TensorFlow has made it from ``tf.config``.

        Raises:
            UnsupportedError: The program divides the CPU.
            InvalidArgumentError: The program selects a GPU that does not exist.
            AlreadyExistsError: The program has selected other GPUs before.
        """
        count = self._backend.count("gpu")
        if not is_of_program:
            self._require_same(list(range(count)))
            return count
        if given.device_count.get("CPU", 1) > 1:
            msg = "TensorFlow's CPU cannot be divided: its logical CPUs are the simulated GPUs"
            raise UnsupportedError(msg, 'leave "CPU" out of device_count')
        most = given.device_count.get("GPU", count)
        if not most or not count:
            return 0
        visible = read_visible(given.gpu_options.visible_device_list, count)[:most]
        self._require_same(visible)
        return len(visible)

    def _require_same(self, visible: list[int]) -> None:
        """Raise an error if a GPU has another index than before in this process; eager code has all GPUs."""
        before = self._chosen
        if context.context()._context_handle is not None:
            before = {index: index for index in range(self._backend.count("gpu"))} | before
        for index, chosen in enumerate(visible):
            known = before.get(index, chosen)
            if known != chosen:
                raise tf.errors.AlreadyExistsError(None, None, _TWO_DEVICES.format(index, chosen, known))
        self._chosen.update(enumerate(visible))


_TWO_DEVICES = (
    "TensorFlow device (GPU:{}) is being mapped to multiple devices ({} now, and {} previously), which is not "
    "supported. This may be the result of providing different GPU configurations (ConfigProto.gpu_options, for example "
    "different visible_device_list) when creating multiple Sessions in the same process. This is not currently "
    "supported, see https://github.com/tensorflow/tensorflow/issues/19083"
)


def read_visible(text: str, count: int) -> list[int]:
    """Return the indices of the physical GPUs in a ``visible_device_list``; all if it is empty."""
    if not text:
        return list(range(count))
    result = []
    for part in text.split(","):
        if _NUMBER.fullmatch(part) is None:
            msg = f"Could not parse entry in 'visible_device_list': '{part}'. visible_device_list = {text}"
            raise tf.errors.InvalidArgumentError(None, None, msg)
        if not 0 <= int(part) < count:
            msg = f"'visible_device_list' listed an invalid Device id '{int(part)}' but visible device count is {count}"
            raise tf.errors.InvalidArgumentError(None, None, msg)
        result.append(int(part))
    if len(set(result)) < len(result):
        msg = f"visible_device_list contained a duplicate entry: {text}"
        raise tf.errors.InvalidArgumentError(None, None, msg)
    return result
