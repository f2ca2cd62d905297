"""The gaps of TensorFlow and of this adapter, with reasons. Imports no framework, as the support table reads it."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from devshim.contract.backend import Gap

if TYPE_CHECKING:
    from collections.abc import Mapping

GAPS: Mapping[str, Gap] = MappingProxyType(
    {
        "refuse_mixing": Gap(
            "upstream",
            "between real GPUs TensorFlow copies arguments to the device of the operator, always in a tf.function, and "
            "in eager code unless tf.config.experimental.set_device_policy('explicit') is set; on simulated GPUs that "
            "policy refuses them; in eager code, ds.run and ds.require_same_device refuse them everywhere",
        ),
        "trace_device_of": Gap(
            "upstream",
            "one trace of a tf.function serves calls from every device, so its arguments have no device yet; "
            "variables, captured tensors and results of ds.place inside the function have one",
        ),
        "non_blocking": Gap("upstream", "TensorFlow decides which copies overlap, and has no option for it"),
        "empty_cache": Gap("upstream", "TensorFlow does not release GPU memory before the process ends"),
    }
)

LIMITS: Mapping[str, str] = MappingProxyType(
    {
        "simulate": (
            "memoryview of a tensor on a simulated GPU that was removed raises Python's SystemError, which devshim "
            "cannot replace with its own error"
        ),
        "models": (
            "optimizers of every class in keras.optimizers move; variables of a tf.distribute strategy and optimizers "
            "of Keras 2 are refused, and a tape does not follow a move between the forward pass and its gradient"
        ),
        "guard": (
            "it reports reads by Python and NumPy, masks, and copies between devices by eager operators (TensorFlow's "
            "device policy); it does not report copies by calls of a tf.function or by Keras itself, tf.print, or "
            "NumPy arrays passed to functions such as tf.add"
        ),
        "trace_place": (
            "a result of a branch or of the body of a loop (tf.cond, tf.while_loop, AutoGraph's if and for), of a "
            "function of tf.data or tf.vectorized_map, or of a SavedModel is on the device on which all of that "
            "branch, loop or function runs: place it afterwards"
        ),
        "trace_run": (
            "the function runs on the device that its first argument has when the tf.function is called; arguments on "
            "other devices are copied there, and new tensors without device= are made on the CPU; in a branch or the "
            "body of a loop, it runs on the device of the whole branch or loop"
        ),
    }
)

NOT_SIMULATED: Mapping[str, str] = MappingProxyType(
    {
        "tensorflow.experimental.dtensor": "its meshes name GPUs in C++: use tf.distribute.MirroredStrategy",
        "tensorflow.experimental.tensorrt": "it compiles for real GPUs only: run the model without it",
        "tensorflow.load_op_library": "a library has no kernels for simulated GPUs: call it under tf.device('/CPU:0')",
    }
)
"""A native call, or the beginning of its name, that simulated GPUs cannot run -> why, and what to do instead."""
