"""Switching native names on and off."""

from __future__ import annotations

from collections.abc import Callable

from devshim.simulation.patching import Patches
from devshim_backends._torch.devices import set_gpu_type
from devshim_backends._torch.simulation.internals.state import NAME, SIMULATION, set_types
from devshim_backends._torch.simulation.internals.untraced import keep_compiler_out
from devshim_backends._torch.simulation.native_names import (
    autocast,
    distributed,
    libraries,
    operators,
    refused,
    runtime,
    saved_devices,
    tensors,
)
from devshim_backends._torch.simulation.native_names.internals import (
    compiled_libraries,
    compiling,
    constructors,
    custom_operators,
    deterministic,
    distributed_random,
    forking,
    numbered,
    onnx_export,
    profiling,
    script_calls,
    script_files,
    scripting,
    streams,
    sync_debug,
    tensor_types,
)

_PATCHES = Patches()
_MODULES = (
    runtime,
    streams,
    tensors,
    saved_devices,
    constructors,
    tensor_types,
    autocast,
    refused,
    compiling,
    profiling,
    distributed,
    distributed_random,
    libraries,
    custom_operators,
    numbered,
    onnx_export,
    forking,
    deterministic,
    script_calls,
    script_files,
    scripting,  # the last one: it reads what the others have replaced
)


def set_native_names(named: bool) -> None:
    """Let PyTorch's own names for cards mean the simulated GPUs, or undo that."""
    if not named:
        _uninstall()
        return
    try:
        _install()
    except BaseException:
        _uninstall()
        raise


class _Postponed:
    """The patches of `indices`, which fill in the index of ``"sim"``: they would replace those of this package.

    While native names are on, no program names ``sim``. If a thread makes another GPU than the first its current one
    meanwhile, the patches are installed afterwards.
    """

    patch: Callable[[], None] | None = None
    needed = False

    @classmethod
    def begin(cls) -> None:
        """Postpone the patches, if they are not installed."""
        cls.patch, cls.needed = SIMULATION.on_leaving_first_gpu, False
        if cls.patch is not None:
            SIMULATION.on_leaving_first_gpu = cls._note

    @classmethod
    def end(cls) -> None:
        """Install the patches, or let a thread do so that leaves the first GPU."""
        patch, cls.patch = cls.patch, None
        if patch is not None:
            SIMULATION.on_leaving_first_gpu = None if cls.needed else patch
            if cls.needed:
                patch()

    @classmethod
    def _note(cls) -> None:
        cls.needed = True


def _install() -> None:
    _Postponed.begin()
    set_types(NAME, "cuda")
    scripting.prepare()
    operators.install()
    for each in _MODULES:
        each.install(_PATCHES)
    compiled_libraries.install()
    keep_compiler_out(__package__)
    set_gpu_type("cuda")


def _uninstall() -> None:
    tensor_types.forget_default()
    constructors.forget_default_device()
    autocast.switch_off()
    sync_debug.forget()
    libraries.forget_choices()
    forking.forget()
    _PATCHES.undo()
    refused.uninstall()
    onnx_export.uninstall()
    custom_operators.uninstall()
    compiled_libraries.uninstall()
    deterministic.uninstall()
    operators.uninstall()
    distributed.uninstall()
    distributed_random.uninstall()
    set_types(NAME)
    set_gpu_type(NAME)
    _Postponed.end()
