"""The memory that JAX arrays report while a simulated GPU has the name of a real one.

DLPack: JAX would export an array on a simulated GPU as host memory, so that ``np.from_dlpack(x)`` would read it
silently, and ``jnp.from_dlpack(x)`` would give an array on the host. With native names the capsule states that it is
memory of CUDA. JAX imports it as an array on the same simulated GPU, and others refuse it as they refuse a real GPU's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jax._src.array import ArrayImpl

from devshim.transfers import dlpack
from devshim_backends._jax.simulation.hooks import native_export
from devshim_backends._jax.simulation.native_names.devices import gpu_index

if TYPE_CHECKING:
    from devshim.simulation.patching import Patches

_CUDA = 2
"""DLPack's number for memory of CUDA."""
_platform, _dlpack_device = ArrayImpl.platform, ArrayImpl.__dlpack_device__


def install(patches: Patches) -> None:
    """Replace the methods of JAX arrays."""
    patches.replace(ArrayImpl, "platform", _platform_of)
    patches.replace(ArrayImpl, "__dlpack__", _export)
    patches.replace(ArrayImpl, "__dlpack_device__", _device_of)


def _platform_of(x: Any) -> Any:
    return _platform(x) if gpu_index(x) is None else "gpu"


def _device_of(x: Any) -> Any:
    index = gpu_index(x)
    if index is None:
        return _dlpack_device(x)
    from jax._src.dlpack import DLDeviceType

    return DLDeviceType(_CUDA), index


def _export(x: Any, **options: Any) -> Any:
    index, target = gpu_index(x), options.get("dl_device")
    if index is None or (target is not None and int(target[0]) != _CUDA):
        return native_export(x, **options)
    capsule = native_export(x, **{**options, "stream": None})
    tensor = dlpack.managed_tensor(capsule).tensor
    tensor.device_type, tensor.device_id = _CUDA, index if target is None else int(target[1])
    return capsule
