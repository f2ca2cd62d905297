"""Paddle's flags that exist only in builds for CUDA: programs set them, mostly to get the same numbers in each run.

They choose among algorithms of NVIDIA's libraries, so on a simulated GPU they are stored, and change nothing. So is the
flag of strided kernels, which simulated GPUs switch off (``simulation/internals/plugin.py``): with them, most operators
fail on a view.
"""

from __future__ import annotations

import os
from typing import Any

import paddle

from devshim_backends._paddle.simulation.native_names.internals.callers import is_program
from devshim_backends._paddle.tensors import STRIDES_FLAG

_DEFAULTS: dict[str, bool | int | str] = {
    "FLAGS_conv_workspace_size_limit": 512,
    "FLAGS_cublaslt_exhaustive_search_times": 0,
    "FLAGS_cudnn_batchnorm_spatial_persistent": False,
    "FLAGS_cudnn_deterministic": False,
    "FLAGS_cudnn_exhaustive_search": False,
    "FLAGS_cudnn_exhaustive_search_times": -1,
    "FLAGS_embedding_deterministic": 0,
    "FLAGS_enable_cublas_tensor_op_math": False,
    "FLAGS_flash_attn_version": 2,
    "FLAGS_gemm_use_half_precision_compute_type": False,
    "FLAGS_selected_gpus": "",
    "FLAGS_sync_nccl_allreduce": True,
    STRIDES_FLAG: True,
}
"""Their values at the start: those of Paddle 3.3 (paddle/common/flags.cc)."""

_given: dict[str, Any] = {}
_own_set, _own_get = paddle.set_flags, paddle.get_flags


def _value(name: str) -> Any:
    """Return the value that a program has set, or that of the environment, or the default."""
    given = _given.get(name)
    if given is not None:
        return given
    default, text = _DEFAULTS[name], os.environ.get(name)
    return default if text is None else _converted(default, text)


def _converted(default: bool | int | str, value: Any) -> Any:
    """Return a value in the type of a flag; Paddle reads text such as ``"true"`` as a switch."""
    if isinstance(default, bool) and isinstance(value, str):
        return value.lower() in ("1", "true", "yes", "on", "t", "y")
    return type(default)(value)


def set_flags(flags: dict[str, Any]) -> None:
    """Set flags; Paddle's own function sets, or refuses, those that its build has."""
    if not isinstance(flags, dict):
        _own_set(flags)  # which raises
    _own_set({name: value for name, value in flags.items() if name not in _DEFAULTS})
    _given.update({name: _converted(_DEFAULTS[name], flags[name]) for name in flags if name in _DEFAULTS})


def get_flags(flags: Any) -> dict[str, Any]:
    """Return the values of flags, by name."""
    names = [flags] if isinstance(flags, str) else flags
    if not isinstance(names, (list, tuple)):
        return dict(_own_get(flags))  # which raises
    by_program = is_program()  # others ask whether Paddle reads strides
    own = [name for name in names if name not in _DEFAULTS or (name == STRIDES_FLAG and not by_program)]
    found = dict(_own_get(own)) if own else {}
    return {name: found[name] if name in found else _value(name) for name in names}


def functions() -> dict[Any, Any]:
    """Return Paddle's two functions -> their replacements."""
    return {_own_set: set_flags, _own_get: get_flags}


def forget() -> None:
    """Forget what programs have set."""
    _given.clear()
