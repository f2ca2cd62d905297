"""The build and the devices that TensorFlow reports outside ``tf.config``, with native names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensorflow.core.framework import device_attributes_pb2
from tensorflow.python.client import device_lib
from tensorflow.python.framework import test_util
from tensorflow.python.platform import build_info, test

from devshim_backends._tensorflow.simulation.native_names.internals.sessions import describe_gpu
from devshim_backends._tensorflow.simulation.native_names.names import is_simulated_gpu

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.simulation.patching import Patches
    from devshim_backends._tensorflow.simulation.simulate import TensorflowSimulation

__all__ = ["install"]


def install(patches: Patches, backend: TensorflowSimulation) -> None:
    """Let TensorFlow describe itself as a build with CUDA and its GPUs."""
    patches.replace(build_info, "build_info", {**build_info.build_info, "is_cuda_build": True})
    for module in {id(each): each for each in (test._test_util, test_util)}.values():
        if hasattr(module, "IsGoogleCudaEnabled"):
            patches.replace(module, "IsGoogleCudaEnabled", lambda: True)
    patches.replace(device_lib, "list_local_devices", _wrap_list(device_lib.list_local_devices, backend))


def _wrap_list(original: Callable[..., list[Any]], backend: TensorflowSimulation) -> Callable[..., list[Any]]:
    def list_local_devices(session_config: Any = None) -> list[Any]:
        hosts = [each for each in original(session_config) if not is_simulated_gpu(each.name)]
        return hosts + [_attributes(index) for index in range(backend.count("gpu"))]

    return list_local_devices


def _attributes(index: int) -> Any:
    memory, text = describe_gpu(index)
    return device_attributes_pb2.DeviceAttributes(
        name=f"/device:GPU:{index}", device_type="GPU", memory_limit=memory, physical_device_desc=text
    )
