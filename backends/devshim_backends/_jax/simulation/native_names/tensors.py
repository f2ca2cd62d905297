"""The memory that JAX arrays report while a simulated GPU has the name of a real one.

DLPack: JAX would export an array on a simulated GPU as host memory, so that ``np.from_dlpack(x)`` would read it
silently, and ``jnp.from_dlpack(x)`` would give an array on the host. With native names the capsule states that it is
memory of CUDA. JAX imports it as an array on the same simulated GPU, and others refuse it as they refuse a real GPU's.

`jax.transfer_guard`: JAX's C++ checks copies from a GPU to the host, but not reads of the host's memory, which those of
a simulated GPU are. So they are checked here, against the same flags of JAX.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import jax
from jax._src import config
from jax._src.array import ArrayImpl

from devshim.monitoring.buffer_protocol import instrument_buffers
from devshim.transfers import dlpack
from devshim_backends._jax.simulation.hooks import native_export
from devshim_backends._jax.simulation.native_names.devices import gpu_index, is_gpu

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.simulation.patching import Patches

_CUDA = 2
"""DLPack's number for memory of CUDA."""
_READ = "_single_device_array_to_np_array_did_copy"
"""The method of one device's array through which NumPy, Python and JAX read its values."""
_platform, _dlpack_device = ArrayImpl.platform, ArrayImpl.__dlpack_device__


def install(patches: Patches) -> None:
    """Replace the methods of JAX arrays."""
    patches.replace(ArrayImpl, "platform", _platform_of)
    patches.replace(ArrayImpl, "__dlpack__", _export)
    patches.replace(ArrayImpl, "__dlpack_device__", _device_of)
    patches.replace(ArrayImpl, _READ, _checking(getattr(ArrayImpl, _READ)))
    _buffers.enter_context(instrument_buffers(ArrayImpl, _check_read))  # NumPy reads host memory past the methods


def uninstall() -> None:
    """Stop checking the buffers of JAX arrays; `Patches` restores their methods."""
    _buffers.close()


# ---------------------------------------------------------------------- jax.transfer_guard
_LEVELS = config.guard_lib.TransferGuardLevel
_REFUSED = {_LEVELS.DISALLOW_EXPLICIT: (False, True), _LEVELS.DISALLOW: (False,)}
"""A level of the guard -> what it refuses: implicit transfers (False), explicit ones (True)."""
_LOGGED = {_LEVELS.LOG_EXPLICIT: (False, True), _LEVELS.LOG: (False,)}
_mine, _common = config.guard_lib.thread_local_state, config.guard_lib.global_state
_buffers = ExitStack()


def _check_read(x: Any) -> None:
    """Raise the error of JAX if its transfer guard refuses a read of an array; log the read if the guard does."""
    state = _mine()
    level = state.device_to_host or _common().device_to_host
    if level is None or level == _LEVELS.ALLOW or not any(map(is_gpu, x.sharding.device_set)):
        return
    shape, device = ",".join(map(str, x.shape)), next(iter(x.sharding.device_set))
    text = f"device-to-host transfer: shape=({shape}), dtype={x.dtype.name}, device={device}"
    if state.explicit_device_get in _REFUSED.get(level, ()):
        msg = f"INVALID_ARGUMENT: Disallowed {text}"
        raise jax.errors.JaxRuntimeError(msg)
    if state.explicit_device_get in _LOGGED.get(level, ()):
        print(text, file=sys.stderr)


def _checking(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a replacement for the method that reads an array, which obeys ``jax.transfer_guard``."""

    def read(x: Any) -> Any:
        _check_read(x)
        return original(x)

    return read


# ---------------------------------------------------------------------- devices
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
