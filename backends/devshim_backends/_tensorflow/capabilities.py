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
            "between real cards TensorFlow copies arguments to where an operator runs, unless "
            "tf.config.experimental.set_device_policy('explicit') is set, and in a tf.function always; simulated cards "
            "are refused under that policy, and ds.run and ds.require_same_device refuse everywhere",
        ),
        "trace_device_of": Gap(
            "upstream",
            "one trace of a tf.function serves calls from every device, so its arguments have none yet; variables, "
            "captured tensors and what ds.place made inside have one, and are answered",
        ),
        "trace_run": Gap(
            "upstream", "it follows the device of its arguments, which a tf.function does not know of its own arguments"
        ),
        "non_blocking": Gap("upstream", "TensorFlow decides by itself which copies overlap, and has no switch for it"),
        "empty_cache": Gap("upstream", "TensorFlow never gives memory back to a card before the process ends"),
    }
)

LIMITS: Mapping[str, str] = MappingProxyType(
    {
        "simulate": (
            "memoryview of a tensor on a simulated GPU that was taken away raises Python's SystemError, whose place "
            "devshim's own cannot take"
        ),
        "models": (
            "every class of keras.optimizers is moved; variables of a tf.distribute strategy and optimizers of "
            "Keras 2 are refused, and a tape does not follow a move between the forward pass and its gradient"
        ),
        "guard": (
            "what Python and NumPy read, masks, and what eager operators carry between devices (TensorFlow's device "
            "policy); not what calls of a tf.function and Keras' own carry, nor tf.print, nor NumPy's arrays that "
            "functions such as tf.add are given"
        ),
        "trace_place": (
            "what leaves a branch or the body of a loop (tf.cond, tf.while_loop, AutoGraph's if and for), a function "
            "of tf.data or tf.vectorized_map, or a SavedModel is where that as a whole runs: place it behind"
        ),
    }
)
