"""``paddle.amp`` on simulated GPUs: its scopes, and what it answers about the GPUs."""

from __future__ import annotations

from functools import wraps
from importlib import import_module
from typing import Any

import paddle

from devshim.errors import UnsupportedError
from devshim_backends._paddle.simulation import dtypes
from devshim_backends._paddle.simulation.native_names import names


def functions() -> dict[Any, Any]:
    """Return Paddle's functions -> their replacements."""
    module = import_module("paddle.amp.auto_cast")
    found = {module.amp_guard: _amp_guard(module.amp_guard)}  # `auto_cast` calls it
    for original in (paddle.amp.is_float16_supported, paddle.amp.is_bfloat16_supported):
        found[original] = _or_simulated(original)
    if hasattr(module, "_is_custom_device_bfloat16_supported"):
        original = module._is_custom_device_bfloat16_supported
        found[original] = _or_simulated(original)
    if hasattr(module, "is_autocast_enabled"):
        found[module.is_autocast_enabled] = _is_autocast_enabled(module.is_autocast_enabled)
    return found


def _is_autocast_enabled(original: Any) -> Any:
    @wraps(original)
    def is_autocast_enabled(*args: Any, **kwargs: Any) -> bool:
        return dtypes.is_auto_casting() or original(*args, **kwargs)

    return is_autocast_enabled


def _amp_guard(original: Any) -> Any:
    """Return a scope that is `dtypes`'s on a simulated GPU."""

    @wraps(original)
    def amp_guard(
        enable: Any = True,
        custom_white_list: Any = None,
        custom_black_list: Any = None,
        level: str = "O1",
        dtype: Any = "float16",
        use_promote: bool = True,
    ) -> Any:
        scope = original(enable, custom_white_list, custom_black_list, level, dtype, use_promote)
        if not names.is_simulated(paddle.base.framework._current_expected_place_()):
            return scope
        if not paddle.in_dynamic_mode():
            if not enable:
                return scope
            msg = "simulated GPUs do not support paddle.amp.auto_cast inside a program that is compiled as a whole"
            raise UnsupportedError(msg, "compile it with to_static(full_graph=False), or use auto_cast outside of it")
        return dtypes.auto_cast_scope(scope, dtype)

    return amp_guard


def _or_simulated(original: Any) -> Any:
    """Return a function that answers True for a simulated GPU, and otherwise as before."""

    @wraps(original)
    def is_supported(device: Any = None) -> bool:
        place = paddle.base.framework._current_expected_place_() if device is None else _place_of(device)
        return names.is_simulated(place) or bool(original() if device is None else original(device))

    return is_supported


def _place_of(device: Any) -> Any:
    """Return the place that a text names."""
    return paddle.device._convert_to_place(device) if isinstance(device, str) else device
