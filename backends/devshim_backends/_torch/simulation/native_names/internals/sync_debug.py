"""``torch.cuda.set_sync_debug_mode``: report the calls for which the host would wait for a card.

Simulated GPUs never wait, so this module lists what a build for CUDA reports, from PyTorch's sources (2.13):

* copies between a card and the host that block, of any number of elements but 0: ``c10::cuda::memcpy_and_sync``;
* ``item()``, and operators whose results have a size that depends on values (`internals.waiting`);
* an index or a mask that is on the host and must be copied to the card, except a mask, which PyTorch pins;
* ``Stream.synchronize()``. `torch.cuda.synchronize` and events are not reported.

While the mode is off, an operator costs the same as without this module.
"""

from __future__ import annotations

import sys
import warnings
from contextlib import ExitStack
from types import FrameType
from typing import Any

import torch

from devshim.monitoring.instrumentation import patched
from devshim_backends._torch.simulation import hooks
from devshim_backends._torch.simulation.internals import kernels
from devshim_backends._torch.transfers.internals.waiting import INDEXING, reason_to_wait

__all__ = ["forget", "get_mode", "report", "set_mode"]

_TEXT = "called a synchronizing CUDA operation"
_PROTOTYPE = "Synchronization debug mode is a prototype feature and does not yet detect all synchronizing operations"
_OWN = ("devshim", "devshim_backends")
_UNREPORTED = frozenset({"unique_dim", "unique_dim_consecutive"})
"""Operators that wait in Thrust, which PyTorch does not see."""
_PATCHES = ExitStack()
"""The replaced functions while the mode is on; a guard that replaces them, too, may end earlier or later."""


class _Mode:
    """The mode of the process: 0 is off, 1 warns, 2 raises; and whether PyTorch has said that it is a prototype."""

    value = 0
    announced = False


def get_mode() -> int:
    """Replace ``torch._C._cuda_get_sync_debug_mode``."""
    return _Mode.value


def set_mode(mode: int) -> None:
    """Replace ``torch._C._cuda_set_sync_debug_mode``."""
    if not _Mode.announced:
        _Mode.announced = True
        warnings.warn(_PROTOTYPE, UserWarning, stacklevel=2)
    if not 0 <= mode <= 2:
        msg = "invalid value of debug_mode, expected one of 0,1,2"
        raise RuntimeError(msg)
    before, _Mode.value = _Mode.value, mode
    if mode and not before:
        reads = {"read": _reporting_read(kernels.read), "on_blocking_copy": report}
        _PATCHES.enter_context(patched(hooks, {"_compute": _reporting_compute(hooks._compute)}))
        _PATCHES.enter_context(patched(kernels, reads))
    elif not mode:
        _PATCHES.close()


def forget() -> None:
    """Switch the mode off."""
    _Mode.value, _Mode.announced = 0, False
    _PATCHES.close()


def report() -> None:
    """Report a call for which the host would wait, at the line outside of devshim that makes it."""
    if _Mode.value == 2:
        raise RuntimeError(_TEXT)
    if _Mode.value == 1:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and _module(frame).partition(".")[0] in _OWN:
            frame = frame.f_back
        if frame is not None:
            registry = frame.f_globals.setdefault("__warningregistry__", {})
            warnings.warn_explicit(
                _TEXT, UserWarning, frame.f_code.co_filename, frame.f_lineno, _module(frame), registry
            )


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__") or "")


def _reporting_compute(original: Any) -> Any:
    """Return a replacement for `hooks._compute`, through which all operators without their own kernel go."""

    def compute(plan: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = plan.name.partition("::")[2]
        if name not in _UNREPORTED and (reason_to_wait(name, args, kwargs) or _copies_an_index(name, args)):
            report()
        return original(plan, args, kwargs)

    return compute


def _reporting_read(original: Any) -> Any:
    """Return a replacement for `kernels.read`, which is ``x.item()``."""

    def read(x: Any) -> Any:
        report()
        return original(x)

    return read


def _copies_an_index(name: str, args: tuple[Any, ...]) -> bool:
    """Return True if an operator copies an index to the card of its first argument."""
    if name not in INDEXING or args[0].get_device() < 0:
        return False
    return any(x is not None and x.get_device() < 0 and x.dtype not in (torch.bool, torch.uint8) for x in args[1])
