"""The build and the devices that TensorFlow reports outside ``tf.config``, with native names.

A session of ``tf.compat.v1`` sees one CPU and no simulated GPU. It would compute on the host, so it is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensorflow.core.framework import device_attributes_pb2
from tensorflow.python.client import device_lib, session
from tensorflow.python.framework import test_util
from tensorflow.python.platform import build_info, test

from devshim.devices.device import Device
from devshim.errors import UnsupportedError
from devshim.simulation.properties import CAPABILITY
from devshim_backends._tensorflow.simulation.native_names.names import is_simulated_gpu

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.simulation.patching import Patches
    from devshim_backends._tensorflow.simulation.simulate import TensorflowSimulation

__all__ = ["install"]

_DEFAULT_MEMORY = 16 * 2**30
"""The bytes that `device_lib` reports for a simulated GPU without a limit; it has no value for "unlimited"."""


def install(patches: Patches, backend: TensorflowSimulation) -> None:
    """Let TensorFlow describe itself as a build with CUDA and its GPUs."""
    patches.replace(build_info, "build_info", {**build_info.build_info, "is_cuda_build": True})
    for module in {id(each): each for each in (test._test_util, test_util)}.values():
        if hasattr(module, "IsGoogleCudaEnabled"):
            patches.replace(module, "IsGoogleCudaEnabled", lambda: True)
    patches.replace(device_lib, "list_local_devices", _wrap_list(device_lib.list_local_devices, backend))
    if backend.simulated:
        patches.replace(session.BaseSession, "__init__", _refuse_session)


def _wrap_list(original: Callable[..., list[Any]], backend: TensorflowSimulation) -> Callable[..., list[Any]]:
    def list_local_devices(session_config: Any = None) -> list[Any]:
        hosts = [each for each in original(session_config) if not is_simulated_gpu(each.name)]
        return hosts + [_attributes(backend, index) for index in range(backend.count("gpu"))]

    return list_local_devices


def _attributes(backend: TensorflowSimulation, index: int) -> Any:
    about = backend.describe(Device("gpu", index))
    model = about.name.replace(",", " ")  # TensorFlow's readers separate the fields at commas
    numbers = ".".join(map(str, CAPABILITY))
    fields = (f"device: {index}", f"name: {model}", "pci bus id: <undefined>", f"compute capability: {numbers}")
    return device_attributes_pb2.DeviceAttributes(
        name=f"/device:GPU:{index}",
        device_type="GPU",
        memory_limit=about.total_memory or _DEFAULT_MEMORY,
        physical_device_desc=", ".join(fields),
    )


def _refuse_session(self: Any, *args: Any, **kwargs: Any) -> None:
    self._session = None  # its destructor reads this
    msg = "a session of tf.compat.v1 would compute on the CPU: it does not see simulated GPUs"
    raise UnsupportedError(msg, "compute eagerly or in a tf.function, without tf.compat.v1.Session")
