"""Tensors for which only TensorFlow chose the device: in the scope of `ds.run` they follow the tensors of the function.

They have the attribute ``_devshim_anywhere``, which `device_rules` reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensorflow.python.eager import context

from devshim_backends._tensorflow.internals.locations import EAGER
from devshim_backends._tensorflow.simulation import device_rules
from devshim_backends._tensorflow.simulation.device_rules import in_data_scope, is_operand

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["mark_free_results", "may_be_anywhere"]

_DRAWS = tuple(
    f"{prefix}{name}"
    for prefix in ("", "Stateless")
    for name in ("Random", "TruncatedNormal", "Multinomial", "ParameterizedTruncatedNormal")
)
"""How the names of operators that draw begin."""


def may_be_anywhere(x: Any) -> bool:
    """Return True for a constant, or an array in ``x + array``, whose device TensorFlow chose without regard to ``x``.

    Functions such as ``tf.nn.gelu`` and ``tf.one_hot`` make their constants first, in the scope of `ds.run`. A constant
    for which the function names a device is made in a scope of that device.
    """
    if context.context().device_name:
        return in_data_scope()
    return bool(x.shape.rank) and is_operand(3)


def mark_free_results(op: str, inputs: Sequence[Any], result: Any) -> None:
    """Mark results in the scope of `ds.run` for which only TensorFlow chose the device: they may be anywhere, too.

    These are results of operators on marked tensors and on int32 tensors of the host, such as shapes. Of an operator
    that draws, only the distribution's parameters count: a generator's state is on a device that no line chose.
    """
    if not in_data_scope():
        return
    tensors = device_rules._tensors(inputs)
    if op.startswith(_DRAWS) and op != "RandomShuffle":  # shapes, seeds and states are integers
        tensors = (x for x in tensors if x.dtype.is_floating)
    if all(hasattr(x, "_devshim_anywhere") or device_rules._is_hosted(x) for x in tensors):
        for each in result if type(result) is list else [result]:
            if type(each) is EAGER and each.dtype not in device_rules._HANDLES:
                each._devshim_anywhere = True
