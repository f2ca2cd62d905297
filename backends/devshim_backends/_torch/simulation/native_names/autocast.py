"""``torch.autocast("cuda")``: PyTorch's own class, with a state that also applies to simulated GPUs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from devshim.simulation.patching import Patches
from devshim_backends._torch.simulation.internals.state import NAME


def _set_for_both(real: Callable[..., Any]) -> Callable[..., Any]:
    """Return a wrapper that sets a state for simulated GPUs when it is set for CUDA, as with one argument."""

    @functools.wraps(real)
    def wrapper(*args: Any) -> Any:
        if len(args) == 1 or args[0] == "cuda":
            real(NAME, args[-1])
        return real(*args)

    return wrapper


def install(patches: Patches) -> None:
    """Install the replacements."""
    for name in ("set_autocast_enabled", "set_autocast_dtype"):
        patches.replace(torch, name, _set_for_both(getattr(torch, name)))
    patches.replace(torch, "set_autocast_gpu_dtype", functools.partial(torch.set_autocast_dtype, "cuda"))


def switch_off() -> None:
    """End a state that a program has left on in this thread."""
    if torch.is_autocast_enabled("cuda"):
        torch.set_autocast_enabled("cuda", False)
        torch.set_autocast_enabled(NAME, False)
