"""Keeping `torch.compile` out of this package.

A compiled function calls operators, whose kernels are Python here, and PyTorch's compiler inspects every Python frame
that runs under it. It would try to compile the kernels, and endlessly compile its own query of the current stream.
"""

from __future__ import annotations

import sys
from types import CodeType, FunctionType
from typing import Any

import torch

_frames: Any = torch._C._dynamo.eval_frame
_SKIP = _frames._FrameAction.SKIP


def keep_compiler_out(package: str) -> None:
    """Mark every function of a package as one that dynamo must skip, without loading the compiler."""
    for name, module in list(sys.modules.items()):
        if name.startswith(package):
            for value in list(vars(module).values()):
                _mark(value, name)


def _mark(value: Any, module: str) -> None:
    if isinstance(value, FunctionType) and value.__module__ == module:
        _mark_code(value.__code__)
    elif isinstance(value, type) and value.__module__ == module:
        for each in vars(value).values():
            _mark(getattr(each, "fget", each), module)


def _mark_code(code: CodeType) -> None:
    _frames.set_code_exec_strategy(code, _frames._FrameExecStrategy(_SKIP, _SKIP))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _mark_code(constant)
