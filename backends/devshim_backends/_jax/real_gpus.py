"""The GPUs that JAX could have, found without starting it.

JAX answers questions about GPUs only by starting. The start takes most of the GPUs' memory, and after it a program can
no longer choose or simulate GPUs. So until JAX has started, this module looks for an installed GPU plugin, without
which there is no GPU, and asks the driver for the GPUs that ``CUDA_VISIBLE_DEVICES`` leaves visible.

The plug-ins for Apple's GPUs (``METAL``) and Intel's (``oneapi``, or ``xpu`` of the older one) take no memory at the
start, and no driver can be asked: there, JAX is started to count.
"""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import TYPE_CHECKING

import jax
from jax._src import hardware_utils, xla_bridge

from devshim.devices import cuda, nvml

if TYPE_CHECKING:
    from devshim.devices.nvml import Card

_BUNDLED = ("jaxlib.cuda._versions", "jaxlib.rocm._versions")
"""Modules of GPU support inside jaxlib itself, in older wheels."""

_PLATFORMS = {"cuda": "cuda", "rocm": "rocm", "metal": "metal", "oneapi": "oneapi", "openxla": "xpu"}
"""A part of a plugin's name -> its platform; ``intel_extension_for_openxla`` registers ``xpu``."""

_AMD_NODES = "/sys/class/kfd/kfd/topology/nodes"


@cache
def gpu_plugin() -> str | None:
    """Return the name of the installed GPU plugin, or None, in which case JAX has no GPU in this process."""
    names = (*_plugins(), *_BUNDLED)
    found = (name for part in _PLATFORMS for name in names if part in name and _exists(name))
    return next(found, None)


def platform() -> str:
    """Return the platform of the plugin: ``"cuda"``, ``"rocm"``, ``"metal"``, ``"oneapi"`` or ``"xpu"``."""
    plugin = gpu_plugin() or "cuda"
    return next((name for part, name in _PLATFORMS.items() if part in plugin), "cuda")


def jax_name(platform_name: str) -> str:
    """Return JAX's name of the GPUs of a platform; ``gpu`` is its name for several platforms."""
    return {"cuda": "gpu", "rocm": "gpu", "metal": "METAL", "mps": "METAL"}.get(platform_name, platform_name)


def counts_by_starting() -> bool:
    """Return True if only JAX itself can count the GPUs."""
    return platform() not in ("cuda", "rocm")


def is_rocm() -> bool:
    """Return True if the GPUs are AMD's."""
    return "rocm" in (gpu_plugin() or "")


def _plugins() -> list[str]:
    """Return the modules that JAX would load as plugins: those in its namespace package, and entry points."""
    from importlib.metadata import entry_points

    spec = find_spec("jax_plugins")
    folders = spec.submodule_search_locations if spec is not None else None
    found = [f"jax_plugins.{module.name}" for module in iter_modules(folders)] if folders else []
    return found + [point.value for point in entry_points(group="jax_plugins")]


def _exists(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False


@cache
def has_tpu_library() -> bool:
    """Return True if libtpu is installed."""
    return _exists("libtpu")


def is_allowed(kind: str) -> bool:
    """Return True if ``JAX_PLATFORMS`` lets JAX use this kind of device."""
    chosen = jax.config.jax_platforms
    names = {"gpu": {"gpu", "cuda", "rocm", platform()}, "tpu": {"tpu"}, "cpu": {"cpu"}}[kind]
    return not chosen or bool(names & set(chosen.lower().split(",")))


def count() -> int:
    """Return the number of GPUs that JAX will find when it starts."""
    if is_rocm():
        return _count_amd()
    return cuda.count() if sees_driver() else 0


def sees_driver() -> bool:
    """Return False if JAX will not ask the NVIDIA driver: JAX first looks for ``/dev/nvidia0`` and others."""
    return bool(hardware_utils.has_visible_nvidia_gpu())


def _start_failure() -> str | None:
    """Return the reason why JAX, which has started, did not start the NVIDIA GPUs that the driver reports."""
    reason = getattr(xla_bridge, "_backend_errors", {}).get("cuda")
    return f"its CUDA plug-in reports: {reason}" if reason else cuda.why_not_started()


def _count_amd() -> int:
    """Count AMD GPUs: the kernel's driver lists each as a node with SIMDs (CPUs have none)."""
    found = 0
    for node in os.listdir(_AMD_NODES) if os.path.isdir(_AMD_NODES) else ():
        with open(f"{_AMD_NODES}/{node}/properties", encoding="ascii") as lines:
            found += any(line.startswith("simd_count ") and line.split()[1] != "0" for line in lines)
    hidden = os.environ.get("HIP_VISIBLE_DEVICES", os.environ.get("ROCR_VISIBLE_DEVICES"))
    return found if hidden is None else min(found, len([name for name in hidden.split(",") if name.strip()]))


def nvml_card(index: int) -> Card | None:
    """Return the driver's record of the GPU with a CUDA index, or None if that is not certain."""
    return nvml.card_at(index) if platform() == "cuda" else None


def why_unavailable(kind: str, count: int) -> str:
    """Return the reason why there are not more than ``count`` devices of a kind."""
    if kind == "tpu":
        return "JAX_PLATFORMS excludes TPUs" if has_tpu_library() else "libtpu is not installed"
    if kind != "gpu":
        return f"JAX has no devices of kind {kind!r}"
    if gpu_plugin() is None:
        return "this JAX is a CPU-only build (no CUDA, ROCm, Metal or oneAPI plugin is installed)"
    if not is_allowed("gpu"):
        return f"JAX_PLATFORMS={jax.config.jax_platforms!r} excludes GPUs"
    if counts_by_starting():
        return f"its plugin {gpu_plugin()} starts {'no more' if count else 'none'}"
    if is_rocm():
        return "the AMD driver reports no more GPUs"
    if not sees_driver():
        return "there is no /dev/nvidia0, and without it JAX does not ask the NVIDIA driver"
    if not count and xla_bridge.backends_are_initialized():
        return _start_failure() or nvml.why_no_more(count)
    return nvml.why_no_more(count)
