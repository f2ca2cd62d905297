"""The operators of cuDNN, which have no kernels for the CPU: Keras uses its general LSTM and GRU instead.

Keras asks whether there is a GPU, and then calls cuDNN. If that raises TensorFlow's `NotFoundError` while the operator
is created, it takes the general code. TensorFlow itself would raise when the operator runs, which is too late in a
`tf.function`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import tensorflow as tf
from tensorflow.python.ops import gen_cudnn_rnn_ops

from devshim_backends._tensorflow.failures import MissingKernelError

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.simulation.patching import Patches
    from devshim_backends._tensorflow.simulation.simulate import TensorflowSimulation

__all__ = ["install"]

_OPERATORS = {"CudnnRNN": "cudnn_rnn", "CudnnRNNV2": "cudnn_rnnv2", "CudnnRNNV3": "cudnn_rnnv3"}
"""Name in `tf.raw_ops` -> name in TensorFlow's module."""


def _refusal(name: str) -> Callable[..., NoReturn]:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        msg = f"simulated GPUs do not have the operator {name} of cuDNN"
        raise MissingKernelError(msg, "use keras.layers.LSTM or keras.layers.GRU, without use_cudnn=True")

    return refuse


def install(patches: Patches, backend: TensorflowSimulation) -> None:
    """Refuse the operators."""
    for name, function in _OPERATORS.items():
        patches.replace(tf.raw_ops, name, _refusal(name))
        patches.replace(gen_cudnn_rnn_ops, function, _refusal(name))
