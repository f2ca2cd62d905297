"""``torch.compile``: its fake tensors, and its default backend, which generates code for cards that do not exist.

A fake tensor has a device and no values. Like a real one it is on ``sim:1``: autograd, in a build without CUDA, ends
the process when it meets a tensor that is on ``cuda:1``.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from devshim.simulation.patching import Patches
from devshim_backends._torch.simulation.native_names.names import SHOWN, to_simulated

_TEXT = (
    "torch.compile: simulated GPUs run no compiled code, so this function is traced and then runs eagerly "
    '(backend="eager" instead of "inductor")'
)


def _compile(real: Any) -> Any:
    """Return a replacement for `torch.compile`."""

    @functools.wraps(real)
    def compile(
        model: Any = None, *, backend: Any = "inductor", mode: Any = None, options: Any = None, **kw: Any
    ) -> Any:
        if backend == "inductor" and not kw.get("disable"):
            warnings.warn(_TEXT, UserWarning, stacklevel=2)
            backend, mode, options = "eager", None, None
        return real(model, backend=backend, mode=mode, options=options, **kw)

    return compile


def _create_fake(real: Any) -> Any:
    """Return a replacement for ``FakeTensor.__new__`` that translates the device, under each of its names."""

    def create(cls: type, mode: Any = None, elem: Any = None, device: Any = None, *args: Any, **options: Any) -> Any:
        for name in ("fake_device", "_fake_device"):
            if options.get(name) is not None:
                options[name] = to_simulated(options[name])
        return real(cls, mode, elem, to_simulated(device), *args, **options)

    return create


def _fake_device(real: property) -> property:
    """Return a replacement for ``FakeTensor.device``."""
    assert real.fget is not None
    get = real.fget

    def device(self: Any) -> Any:
        found = get(self)
        return SHOWN.get(found, found)

    return property(device, real.fset)


def install(patches: Patches) -> None:
    """Install the replacements."""
    patches.replace(torch, "compile", _compile(torch.compile))
    patches.replace(FakeTensor, "__new__", staticmethod(_create_fake(FakeTensor.__new__)))
    patches.replace(FakeTensor, "device", _fake_device(vars(FakeTensor)["device"]))
