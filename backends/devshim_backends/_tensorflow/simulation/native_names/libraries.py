"""The operators of cuDNN, which have no kernels for the CPU: those for recurrent layers are computed by `recurrent`.

Keras asks whether there is a GPU, and then calls the operator. It takes its general code, or refuses
``use_cudnn=True``, if the operator raises TensorFlow's `NotFoundError`, so none of these raises that.
"""

from __future__ import annotations

from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.ops import gen_cudnn_rnn_ops

from devshim.errors import UnsupportedError
from devshim_backends._tensorflow.simulation.native_names.internals import recurrent

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.simulation.patching import Patches
    from devshim_backends._tensorflow.simulation.simulate import TensorflowSimulation

__all__ = ["install"]

_OPERATORS = {"CudnnRNN": "cudnn_rnn", "CudnnRNNV2": "cudnn_rnnv2", "CudnnRNNV3": "cudnn_rnnv3"}
"""Name in `tf.raw_ops` -> name in TensorFlow's module."""


def install(patches: Patches, backend: TensorflowSimulation) -> None:
    """Replace the operators."""
    for name, function in _OPERATORS.items():
        replacement = _operator(name, getattr(gen_cudnn_rnn_ops, function))
        patches.replace(tf.raw_ops, name, replacement)
        patches.replace(gen_cudnn_rnn_ops, function, replacement)


def _operator(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    parameters, results = signature(original), getattr(gen_cudnn_rnn_ops, f"_{name}Output")

    @wraps(original)
    def compute(*args: Any, **kwargs: Any) -> Any:
        bound = parameters.bind(*args, **kwargs)
        bound.apply_defaults()
        output, h, c = _compute(name, bound.arguments)
        reserved = tf.zeros((0,), output.dtype), tf.zeros((0,), tf.int8)
        return results(output, h, c, *reserved[: len(results._fields) - 3])

    return compute


def _compute(name: str, given: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Return the outputs and the last states of an operator, from its inputs and attributes."""
    x, h, c = (tf.convert_to_tensor(given[key]) for key in ("input", "input_h", "input_c"))
    if given.get("num_proj") or (given["input_mode"] != "linear_input" and x.shape[-1] == h.shape[-1]):
        msg = f"simulated GPUs compute {name} without a projection: num_proj=0, input_mode='linear_input'"
        raise UnsupportedError(msg, "use keras.layers.LSTM or keras.layers.GRU, and keras.layers.Dense")
    batch_first = not given.get("time_major", True)
    if batch_first:
        x, h = tf.transpose(x, [1, 0, 2]), tf.transpose(h, [1, 0, 2])
        c = tf.transpose(c, [1, 0, 2]) if given["rnn_mode"] == "lstm" else c
    lengths = given.get("sequence_lengths")
    output, h, c = recurrent.run(
        *(x, h, c, given["params"]),
        tf.fill([tf.shape(x)[1]], tf.shape(x)[0]) if lengths is None else lengths,
        mode=given["rnn_mode"],
        directions=2 if given["direction"] == "bidirectional" else 1,
        dropout=given["dropout"] if given["is_training"] else 0,
    )
    if batch_first:
        output, h = tf.transpose(output, [1, 0, 2]), tf.transpose(h, [1, 0, 2])
        c = tf.transpose(c, [1, 0, 2]) if given["rnn_mode"] == "lstm" else c
    return output, h, c
