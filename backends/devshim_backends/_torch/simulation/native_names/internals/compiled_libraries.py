"""Libraries with kernels for CUDA that are compiled: bitsandbytes, xFormers and Triton.

On a machine with GPUs, bitsandbytes loads its compiled library for CUDA when it is imported, which fails without
NVIDIA's libraries. Here it loads the one for the CPU. Its operators run on simulated GPUs with their kernels for the
CPU, or with those that it has written in PyTorch's operators for any device; an operator that has neither is refused,
and so is a compiled function that only its library for CUDA has. The state of its paged optimizers is not paged.

xFormers uses PyTorch's operators for flash and memory-efficient attention, if it was built for CUDA: its own compiled
library, which says so, cannot be loaded here. A kernel of Triton is refused where it is first called, unless Triton
interprets it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from devshim.simulation.late_patches import LatePatches
from devshim.simulation.patching import Patches
from devshim_backends._torch.capabilities import COMPILED
from devshim_backends._torch.simulation.hooks import run
from devshim_backends._torch.simulation.internals.schemas import plan_of
from devshim_backends._torch.simulation.native_names.refused import refuse

NAMESPACES = frozenset({"bitsandbytes"})
"""The namespaces of operators whose kernels for the CPU are used instead of those for CUDA."""


def on_host(name: str) -> Callable[..., Any]:
    """Return a kernel for simulated GPUs that runs an operator's kernel for the CPU.

    Args:
        name: The operator, such as ``bitsandbytes::quantize_4bit``.
    """
    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")

    def kernel(*args: Any, **kwargs: Any) -> Any:
        op = getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")
        return run(plan_of(op), args, kwargs)

    return kernel


def _load_library_for_cpu(patches: Patches, module: ModuleType) -> None:
    """Let bitsandbytes find no CUDA when it chooses its compiled library."""
    patches.replace(module, "get_cuda_specs", lambda: None)


def _refuse_missing_functions(patches: Patches, module: ModuleType) -> None:
    """Refuse the compiled functions that the library for the CPU lacks; the real error asks for another build."""
    library = module.BNBNativeLibrary
    real = library.__getattr__

    def get(self: Any, name: str) -> Any:
        if name.startswith("_") or hasattr(self._lib, name):
            return real(self, name)
        return lambda *args, **kwargs: refuse(f"bitsandbytes' compiled function {name}", COMPILED["bitsandbytes"])

    patches.replace(library, "__getattr__", get)


def _replace_paged_memory(patches: Patches, module: ModuleType) -> None:
    """Let the state of paged optimizers be memory of the simulated GPU: CUDA's managed memory needs a driver."""

    def get_paged(*shape: int, dtype: Any = torch.float32, device: Any = None) -> Any:
        return torch.zeros(shape, dtype=dtype, device="cuda" if device is None else device)

    patches.replace(module, "get_paged", get_paged)
    patches.replace(module, "fill", lambda A, value, *args, **kwargs: A.fill_(value))


def _allow_operators_of_pytorch(patches: Patches, module: ModuleType) -> None:
    """Let xFormers use the kernels of PyTorch, which it looks for only if it was built for CUDA."""
    patches.replace(module, "_built_with_cuda", True)


def _refuse_driver(patches: Patches, module: ModuleType) -> None:
    """Refuse to look for NVIDIA's driver, which Triton does at the first call of a kernel."""
    patches.replace(module, "_create_driver", lambda: refuse("a kernel of Triton", COMPILED["triton"]))


_LATE = (
    LatePatches("triton.runtime.driver", "_create_driver", _refuse_driver),
    LatePatches("xformers._cpp_lib", "_built_with_cuda", _allow_operators_of_pytorch),
    LatePatches("bitsandbytes.cuda_specs", "get_cuda_specs", _load_library_for_cpu),
    LatePatches("bitsandbytes.cextension", "BNBNativeLibrary", _refuse_missing_functions),
    LatePatches("bitsandbytes.functional", "get_paged", _replace_paged_memory),
)


def install() -> None:
    """Install the patches of these libraries, now or when they are imported."""
    for each in _LATE:
        each.install()


def uninstall() -> None:
    """Remove the patches."""
    for each in _LATE:
        each.undo()
