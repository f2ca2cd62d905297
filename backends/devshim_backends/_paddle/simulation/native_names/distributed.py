"""Programs of several processes, which are refused: Paddle's processes exchange the tensors of GPUs by NCCL.

A build for CPUs has no NCCL. There, `paddle.distributed.init_parallel_env` would wait for ranks forever.
"""

from __future__ import annotations

import os
from functools import wraps
from typing import Any

from paddle import distributed

from devshim.errors import UnsupportedError

__all__ = ["functions"]


def _refuse_several_processes(original: Any) -> Any:
    """Return a function that refuses more than one process, unless the program asks for gloo on the host."""

    @wraps(original)
    def init_parallel_env(*args: Any, **kwargs: Any) -> Any:
        is_alone = int(os.environ.get("PADDLE_TRAINERS_NUM", "1")) < 2
        if is_alone or os.environ.get("PADDLE_DISTRI_BACKEND") == "gloo":
            return original(*args, **kwargs)
        msg = "several processes of PaddlePaddle exchange the tensors of GPUs by NCCL, which simulated GPUs do not have"
        raise UnsupportedError(msg, 'use ds.launch, or the host: paddle.distributed.spawn(..., backend="gloo")')

    return init_parallel_env


def functions() -> dict[Any, Any]:
    """Return Paddle's functions that begin a program of several processes -> their replacements."""
    return {distributed.init_parallel_env: _refuse_several_processes(distributed.init_parallel_env)}
