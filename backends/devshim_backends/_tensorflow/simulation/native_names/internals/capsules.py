"""DLPack with native names: the memory of a simulated GPU is memory of CUDA.

TensorFlow would export a tensor on a simulated GPU as host memory: ``np.from_dlpack(x)`` would read it silently, and
TensorFlow itself would import it on the host. The capsule states CUDA instead. TensorFlow imports it on the same
simulated GPU, and others refuse it as they refuse a real GPU's. A real GPU keeps int32 in host memory, and exports it
from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python import pywrap_tfe

from devshim.transfers import dlpack
from devshim_backends._tensorflow.internals.locations import EAGER, ON_HOST, PLACED, RAW_BACKING_DEVICE
from devshim_backends._tensorflow.simulation.hooks import count_results
from devshim_backends._tensorflow.simulation.native_names.internals.clusters import CLUSTER
from devshim_backends._tensorflow.simulation.native_names.names import index_of_gpu, logical_name, shown_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.simulation.patching import Patches
    from devshim_backends._tensorflow.simulation.simulate import TensorflowSimulation

__all__ = ["install"]

_ALIGNMENT = 64
"""The alignment that TensorFlow's operators for the CPU check; those of a GPU do not."""


def install(patches: Patches, backend: TensorflowSimulation) -> None:
    """Replace the functions that make, describe and read capsules."""
    patches.replace(pywrap_tfe, "TFE_ToDlpackCapsule", _wrap_export(pywrap_tfe.TFE_ToDlpackCapsule))
    patches.replace(pywrap_tfe, "TFE_FromDlpackCapsule", _wrap_import(pywrap_tfe.TFE_FromDlpackCapsule))
    if hasattr(pywrap_tfe, "TFE_DlpackDevice"):  # TensorFlow 2.20
        patches.replace(pywrap_tfe, "TFE_DlpackDevice", _wrap_device(pywrap_tfe.TFE_DlpackDevice))


def _device_of(x: Any) -> tuple[int, int] | None:
    """Return DLPack's device of a tensor on a simulated GPU; None leaves it to TensorFlow."""
    index = index_of_gpu(shown_name(RAW_BACKING_DEVICE(x))) if isinstance(x, EAGER) else None
    if index is None:
        return None
    in_host_memory = x.dtype in ON_HOST and not hasattr(x, PLACED)
    return (dlpack.CPU, 0) if in_host_memory else (dlpack.CUDA, index)


def _wrap_device(original: Callable[[Any], tuple[int, int]]) -> Callable[[Any], tuple[int, int]]:
    return lambda x: _device_of(x) or original(x)


def _wrap_export(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def export(x: Any) -> Any:
        capsule, device = original(x), _device_of(x)
        if device is not None:
            tensor = dlpack.managed_tensor(capsule).tensor
            tensor.device_type, tensor.device_id = device
        return capsule

    return export


def _wrap_import(original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def read(capsule: Any, handle: Any) -> Any:
        offered = _offer_of_gpu(capsule)
        if offered is None:
            return original(capsule, handle)
        name = logical_name(f"{CLUSTER.here}/device:GPU:{offered.device[1]}")
        tensor = dlpack.managed_tensor(capsule).tensor
        tensor.device_type, tensor.device_id = dlpack.CPU, 0
        try:
            x = original(capsule, handle)
        except tf.errors.OpError:
            tensor.device_type, tensor.device_id = offered.device  # the capsule was not used
            raise
        if offered.address % _ALIGNMENT:
            x = EAGER(x._numpy_internal().copy(), f"{CLUSTER.here}/device:CPU:0", None)
        moved = x._copy_to_device(device_name=name)  # shares the memory
        count_results(moved)
        return moved

    return read


def _offer_of_gpu(capsule: Any) -> dlpack.TensorInfo | None:
    """Return what a capsule of CUDA's memory offers, or None for another object, with which TensorFlow deals."""
    try:
        offered = dlpack.read(capsule)
    except (BufferError, TypeError):
        return None
    return offered if offered.device[0] == dlpack.CUDA else None
