"""Load the adapter of a compiler that reads code before the compiler reads devshim's code.

The first call of devshim may be inside ``torch.compile``. Dynamo remembers each global that it has read, and a load
changes some of them: the adapter would be missing from what dynamo has read, or dynamo's checks would fail. So
PyTorch's adapter is loaded when dynamo starts its first compilation, and Paddle's when its bytecode compiler does.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module
from typing import Any

from devshim.errors import DevshimError
from devshim.registry import import_hooks, registry

__all__ = ["watch_compilers"]


def watch_compilers() -> None:
    """Prepare the first compilation of a compiler that reads code; import nothing now."""
    import_hooks.call_after_import("torch._dynamo", _watch_dynamo)
    import_hooks.call_after_import("paddle.jit.sot", _load_paddle)  # imported by the first compilation


def _watch_dynamo() -> None:
    """Load PyTorch's adapter when dynamo starts to compile; now, if it is compiling already."""
    if "torch" in registry.LOADED:
        return
    if sys.modules["torch"].compiler.is_compiling():
        registry.load("torch")
        return
    import_module("torch._dynamo.callback").callback_handler.register_start_callback(_load_torch)


def _load_torch(*_: Any) -> None:
    with suppress(DevshimError):  # the compiled program may not use devshim; if it does, its first call raises this
        registry.load("torch")


def _load_paddle() -> None:
    with suppress(DevshimError):
        registry.load("paddle")
