"""Calls without a counterpart on simulated GPUs; each raises an error that names the line and what to write instead.

The table of these calls is `capabilities.NOT_SIMULATED`, which ``devshim run --check`` also reads.
"""

from __future__ import annotations

import functools
import sys
from types import ModuleType
from typing import Any, NoReturn

import torch
from torch.utils._pytree import tree_leaves

from devshim.errors import UnsupportedError
from devshim.simulation.late_patches import LatePatches
from devshim.simulation.patching import Patches
from devshim.transfers.observers import site
from devshim_backends._torch.capabilities import CUDAGRAPHS, DEVICE_MAPS, NOT_SIMULATED, OOM_OBSERVER

_EXTENSIONS = "torch.utils.cpp_extension"
_REFUSED_ELSEWHERE = ("ExternalStream", "__cuda_array_interface__", DEVICE_MAPS)
"""`streams` has a class for the first, and `tensors` a property for the second. Only maps of GPUs are refused."""
_RPC_OPTIONS = "torch.distributed.rpc.options"
_KERNELS = "torch.cuda.jiterator._create"
_ONE_RESULT, _SEVERAL_RESULTS = f"{_KERNELS}_jit_fn", f"{_KERNELS}_multi_output_jit_fn"


def refuse(name: str, reason: str) -> NoReturn:
    """Raise the error for a call; the reason has the cause, a colon, and the code to write instead."""
    why, _, instead = reason.partition(": ")
    msg = f"simulated GPUs do not support {name}, which {site()} calls: {why}"
    raise UnsupportedError(msg, instead)


class _Refused:
    """A function that cannot be called."""

    def __init__(self, name: str, reason: str) -> None:
        self.__name__ = self.__qualname__ = name.rpartition(".")[2]
        self._name, self._reason = name, reason

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        refuse(self._name, self._reason)


def _refuse_kernel(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """Replace the call of a kernel that a program has created; PyTorch's own tests create some that they never call."""
    name = _SEVERAL_RESULTS if self.return_by_ref else _ONE_RESULT
    refuse(f"the kernels of {name}", NOT_SIMULATED[name])


def _refused_class(name: str, reason: str) -> type:
    """Return a class without instances, so that ``isinstance`` still works."""

    def create(cls: type, *args: Any, **kwargs: Any) -> NoReturn:
        refuse(name, reason)

    return type(name.rpartition(".")[2], (), {"__new__": create, "__module__": name.rpartition(".")[0]})


def install(patches: Patches) -> None:
    """Install the refusals."""
    for name, reason in NOT_SIMULATED.items():
        if not name.startswith((_EXTENSIONS, _KERNELS)) and not name.endswith(_REFUSED_ELSEWHERE):
            _install(patches, name, reason)
    patches.replace(torch.cuda.jiterator._JittedFunction, "__call__", _refuse_kernel)
    for dtype in [each for each in vars(torch.cuda.sparse) if each.endswith("Tensor")]:
        name = f"torch.cuda.sparse.{dtype}"
        _install(patches, name, 'it is a type of old programs: use torch.sparse_coo_tensor(..., device="cuda")')
    observer = OOM_OBSERVER.rpartition(".")[2]  # builds without CUDA lack it
    patches.replace(torch._C, observer, _Refused(OOM_OBSERVER, NOT_SIMULATED[OOM_OBSERVER]))
    for late in _LATE:
        late.install()


def uninstall() -> None:
    """Remove the refusals that are not removed with the other patches."""
    for late in _LATE:
        late.undo()


def _install(patches: Patches, name: str, reason: str) -> None:
    parts = name.split(".")
    owner: Any = sys.modules.get(parts[0])
    for part in parts[1:-1]:
        owner = getattr(owner, part, None)
    found = getattr(owner, parts[-1], None)
    if found is None or parts[-1] not in vars(owner):
        return
    refusal = _refused_class(name, reason) if isinstance(found, type) else _Refused(name, reason)
    patches.replace(owner, parts[-1], refusal)


def _refuse_compiler(patches: Patches, extensions: ModuleType) -> None:
    """Refuse to look for NVIDIA's compiler, which every extension with CUDA sources does; those for the CPU build."""
    reason = "it compiles for real GPUs only: build the sources for the CPU, as CppExtension and load(*.cpp) do"
    patches.replace(extensions, "_join_cuda_home", _Refused("the CUDA compiler of torch.utils.cpp_extension", reason))


_COMPILER = LatePatches(_EXTENSIONS, "_join_cuda_home", _refuse_compiler)  # PyTorch itself does not import the module


def _refuse_device_maps(patches: Patches, options: ModuleType) -> None:
    """Refuse GPUs in the options of RPC: TensorPipe would ask CUDA for them when a process joins or sends a tensor."""

    def refusing(real: Any) -> Any:
        def convert(devices: Any) -> Any:
            converted = real(devices)
            named = [*converted, *converted.values()] if isinstance(converted, dict) else converted
            if any(each.type == "cuda" for each in named):
                refuse("device maps of torch.distributed.rpc", NOT_SIMULATED[DEVICE_MAPS])
            return converted

        return convert

    for name in ("_to_device_map", "_to_device_list"):
        patches.replace(options, name, refusing(getattr(options, name)))


_RPC = LatePatches(_RPC_OPTIONS, "_to_device_map", _refuse_device_maps)


def _refuse_recording(patches: Patches, trees: ModuleType) -> None:
    """Refuse to record a function that was compiled for GPUs, when it is called."""

    def record(*args: Any, **kwargs: Any) -> _Refused:
        return _Refused(CUDAGRAPHS, NOT_SIMULATED[CUDAGRAPHS])

    patches.replace(trees, "cudagraphify_impl", record)


_TREES = LatePatches("torch._inductor.cudagraph_trees", "cudagraphify_impl", _refuse_recording)


def _refuse_code(patches: Patches, inductor: ModuleType) -> None:
    """Refuse to generate code for GPUs, as `torch.compile` does not do here, either; code for the CPU is generated."""

    def refusing(real: Any) -> Any:
        @functools.wraps(real)
        def compile(program: Any, *args: Any, **kwargs: Any) -> Any:
            stored = getattr(program, "state_dict", ())  # a method of modules, and a property of exported programs
            stored = stored() if callable(stored) else stored
            used = tree_leaves((stored, getattr(program, "example_inputs", ()), args, kwargs))
            if any(isinstance(each, torch.Tensor) and each.is_cuda for each in used):
                refuse(f"torch._inductor.{real.__name__} for GPUs", _CODE)
            return real(program, *args, **kwargs)

        return compile

    for name in ("aoti_compile_and_package", "aot_compile", "compile", "standalone_compile"):
        if hasattr(inductor, name):
            patches.replace(inductor, name, refusing(getattr(inductor, name)))


_CODE = "it compiles for real GPUs only: compile the module on the CPU, or call the exported program itself"
_INDUCTOR = LatePatches("torch._inductor", "aot_compile", _refuse_code)
_LATE = (_COMPILER, _RPC, _TREES, _INDUCTOR)
