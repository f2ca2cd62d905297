"""Operators on images with the channels first, for which the CPU has no kernel, as GPUs have.

The image is transposed to channels last and the result back, which gives the same numbers and the same gradient.
Convolutions need no help: oneDNN's kernels for the CPU accept both formats. On the host, TensorFlow's error remains. A
function is traced before its operators have devices, so there it is transposed in every scope.
"""

from __future__ import annotations

from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.ops import gen_array_ops, gen_nn_ops

from devshim_backends._tensorflow.simulation.native_names.names import is_simulated_gpu

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from devshim.simulation.patching import Patches
    from devshim_backends._tensorflow.simulation.simulate import TensorflowSimulation

__all__ = ["install"]

_OPERATORS = (
    (gen_nn_ops, "max_pool", "MaxPool"),
    (gen_nn_ops, "max_pool3d", "MaxPool3D"),
    (gen_array_ops, "space_to_depth", "SpaceToDepth"),
    (gen_array_ops, "depth_to_space", "DepthToSpace"),
)
"""The module and the name of a function, and its name in `tf.raw_ops`."""
_CHANNELS_LAST = {"NCHW": "NHWC", "NCDHW": "NDHWC"}

_backend: TensorflowSimulation


def install(patches: Patches, backend: TensorflowSimulation) -> None:
    """Wrap the operators."""
    global _backend
    _backend = backend
    for module, name, raw in _OPERATORS:
        wrapped = _wrap(getattr(module, name))
        patches.replace(module, name, wrapped)
        patches.replace(tf.raw_ops, raw, _with_keywords_only(wrapped, getattr(tf.raw_ops, raw)))


def _with_keywords_only(function: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def call(**kwargs: Any) -> Any:
        return function(**kwargs)

    return call


def _wrap(original: Callable[..., Any]) -> Callable[..., Any]:
    parameters = signature(original)

    @wraps(original)
    def run(*args: Any, **kwargs: Any) -> Any:
        given = parameters.bind(*args, **kwargs).arguments
        channels_last = _CHANNELS_LAST.get(given.get("data_format", ""))
        if channels_last is None or not _runs_on_gpu():
            return original(*args, **kwargs)
        rank, name = len(channels_last), given.pop("name", None)
        last = {key: _move_channels_last(value) for key, value in given.items() if key in ("ksize", "strides")}
        if given.get("explicit_paddings"):
            last["explicit_paddings"] = _move_pairs_last(given["explicit_paddings"])
        image = tf.transpose(given["input"], _move_channels_last(range(rank)))
        result = original(**{**given, **last, "input": image, "data_format": channels_last})
        return tf.transpose(result, [0, rank - 1, *range(1, rank - 1)], name=name)

    return run


def _runs_on_gpu() -> bool:
    scope = context.context().device_name if tf.executing_eagerly() else None
    return is_simulated_gpu(scope) if scope else _backend.count("gpu") > 0


def _move_channels_last(sizes: Sequence[int]) -> list[int]:
    """Return one number for each dimension, with that of the channels last."""
    return [sizes[0], *sizes[2:], sizes[1]]


def _move_pairs_last(paddings: Sequence[int]) -> list[int]:
    """Return two numbers for each dimension, with those of the channels last."""
    return [*paddings[:2], *paddings[4:], *paddings[2:4]]
