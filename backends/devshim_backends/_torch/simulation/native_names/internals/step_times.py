"""The times that ``DistributedDataParallel`` logs of its steps: there are none of a model on simulated GPUs.

C++ has a timer for the CPU and for CUDA, and warns about every other device when a model logs its first times.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

__all__ = ["log_times", "without_timer"]

_LOGGERS: weakref.WeakSet[Any] = weakref.WeakSet()
"""The loggers of models on simulated GPUs."""


def without_timer(real: Callable[..., Any]) -> Callable[..., Any]:
    """Return a wrapper of ``DistributedDataParallel._ddp_init_helper`` that records its logger."""

    @functools.wraps(real)
    def init(self: Any, *args: Any, **kwargs: Any) -> Any:
        made = real(self, *args, **kwargs)
        if any(each.is_cuda for each in self.module.parameters()):
            _LOGGERS.add(self.logger)
        return made

    return init


def log_times(real: Callable[..., None]) -> Callable[..., None]:
    """Return a replacement for ``Logger.set_runtime_stats_and_log``, which a model calls in a step."""

    def set_runtime_stats_and_log(self: Any) -> None:
        if self not in _LOGGERS:
            real(self)

    return set_runtime_stats_and_log
