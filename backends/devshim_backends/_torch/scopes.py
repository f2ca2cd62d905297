"""The default device of a block, for one thread, in eager code and inside ``torch.compile``.

Requirements of this module:

* ``with torch.device(d)`` belongs to one thread and nests. For CUDA, the current card is set together with it, so that
  ``"cuda"`` without an index, and the kernels of extensions, refer to the same card.
* ``torch.compile(fullgraph=True)`` cannot enter a ``torch.device`` ("Unsupported context manager", 2.13), but it can
  trace a function mode that is a plain class. A compiled function uses a plain mode instead.
* Before 2.13, the compiler ignores modes for ``randn``, ``arange``, ``tensor`` and most other constructors, so a
  default device is silently ignored (pytorch/pytorch#159041, fixed by #165473). This module applies that fix.
"""

from __future__ import annotations

import sys
import threading
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

from devshim.contract.backend import Backend
from devshim.devices.device import CPU
from devshim.monitoring import instrumentation
from devshim_backends._torch.devices import device_module, native
from devshim_backends._torch.tracing import (
    THREAD,
    as_constant,
    compiles_here,
    is_traced_here,
    keep_untraced,
    raise_traced,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from typing import NoReturn

    from devshim.devices.device import Device
    from devshim.errors import DevshimError

_constructors_unpatched = tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 13)


def patch_constructors() -> None:
    """Apply the fix of #165473 if the compiler is loaded: let it ask the modes about constructors too."""
    global _constructors_unpatched
    compiler = sys.modules.get("torch._dynamo.variables.torch")
    overridable = getattr(compiler, "get_overridable_functions", None)
    if overridable is not None:
        overridable().update(_device_constructors())  # a cached set: every caller gets the same object
        _constructors_unpatched = False


patch_constructors._dynamo_marked_constant = True  # type: ignore[attr-defined]  # traced: see `devices.accelerator_count`


def skip_wrappers() -> None:
    """Make dynamo skip the methods that report implicit transfers; at a call of one it breaks the graph.

    Otherwise dynamo would compile them, and the compiled code would always believe that it is being traced.
    """
    for code in tuple(instrumentation.WRAPPERS):  # a copy, because another thread may add one meanwhile
        keep_untraced(code)


_modes, _default_device = torch._C._len_torch_function_stack, torch._C._get_default_device
"""The number of modes, such as a ``torch.device``, that are open, and the device of the default type of tensors."""
_is_jit_tracing = torch._C._is_tracing  # what `torch.jit.is_tracing` calls; only inside TorchScript does it differ


class TorchScopes(Backend):
    """Mixin for scopes."""

    traces_bytecode = True

    def scope(self, device: Device) -> AbstractContextManager[object]:
        if _constructors_unpatched:
            patch_constructors()
        if compiles_here():
            return _TracedScope(native(device))
        if device is CPU and _is_host_default():
            return _NO_SCOPE  # a ``torch.device`` would take part in every call
        select = getattr(device_module("gpu"), "device", None) if device.kind == "gpu" else None  # MPS has one GPU
        if select is not None:
            return _AcceleratorScope(native(device), select(device.index))
        scope: AbstractContextManager[object] = torch.device(native(device))
        return scope

    def data_scope(self, device: Device) -> AbstractContextManager[object]:
        # as `_is_host_default`, without its call: `devshim.run` asks this each time
        return _NO_SCOPE if device is CPU and _modes() == 0 and _default_device() == "cpu" else self.scope(device)

    def compiling(self) -> bool:
        return compiles_here()

    def tracing(self) -> bool:
        # Not `is_compiling`: it is true in all code that dynamo has read, even when this runs after a graph break.
        # Its flag alone does not suffice either: it belongs to the process.
        if THREAD.__dict__.get("tracing_context") is not None:
            return True
        return bool((torch.compiler._is_compiling_flag and is_traced_here()) or _is_jit_tracing())

    def raise_error(
        self, make: Callable[..., DevshimError], args: tuple[Any, ...], cause: BaseException | None = None
    ) -> NoReturn:
        if cause is not None and not compiles_here():
            raise make(*args) from cause
        raise_traced(make, as_constant(args))


def _is_host_default() -> bool:
    """Return True if new tensors of this thread are on the CPU anyway. Dynamo cannot trace this."""
    return bool(_modes() == 0 and _default_device() == "cpu")


_NO_SCOPE: AbstractContextManager[object] = nullcontext()
_THREAD = threading.local()


def _enter_context() -> None:
    """Give this thread the CUDA context of its current GPU.

    A new thread has none, and `torch.cuda.set_device` of the GPU that is current anyway does not change that. Then the
    first matrix product in the thread would make PyTorch warn ("there was no current CUDA context").
    """
    if torch.version.cuda is not None and torch.cuda.is_initialized():
        torch.cuda.is_current_stream_capturing()  # 0.7 us on an H200: the cheapest question that gives a context


class _AcceleratorScope:
    """Both halves of "the default device": where new tensors are created, and which GPU is current."""

    def __init__(self, default: Any, current: Any) -> None:
        self._default = default
        self._current = current

    def __enter__(self) -> object:
        self._current.__enter__()
        try:
            if not hasattr(_THREAD, "has_context"):
                _enter_context()
                _THREAD.has_context = True
            return self._default.__enter__()
        except BaseException:
            self._current.__exit__(None, None, None)
            raise

    def __exit__(self, *failure: object) -> None:
        try:
            self._default.__exit__(*failure)
        finally:
            self._current.__exit__(*failure)


class _TracedScope(TorchFunctionMode):  # type: ignore[misc]  # PyTorch is Any to the type checker
    """An equivalent of ``with torch.device(...)`` that the compiler can trace."""

    def __init__(self, device: Any) -> None:
        super().__init__()
        self._device = device

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = dict(kwargs) if kwargs else {}
        if func in _device_constructors() and options.get("device") is None:
            options["device"] = self._device
        return func(*args, **options)
