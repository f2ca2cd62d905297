"""Implicit transfers by TensorFlow's eager operators between real devices, found by TensorFlow's device policy.

The policy (``tf.config.experimental.set_device_policy``) refuses an operator if one of its inputs is on another device.
It belongs to a thread, which tasks share, and it can only raise, or write to standard error. So while a listener is
active, devshim sets it around each single operator; it reports a refused operator, and then runs it. If a program has
set its own policy, that policy stays, and nothing is reported.

Numbers, and int32 tensors, which TensorFlow natively keeps on the host, do not count as transfers. The policy does not
see what a call of a ``tf.function`` copies. On simulated GPUs operators never mix devices (see
`simulation.device_rules`).
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import context

from devshim.devices.device import CPU
from devshim.monitoring.instrumentation import is_suppressed, patched
from devshim_backends._tensorflow.failures import FAILURES
from devshim_backends._tensorflow.internals.locations import EAGER, ON_HOST
from devshim_backends._tensorflow.simulation.device_rules import set_policy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from devshim.devices.device import Device
    from devshim_backends._tensorflow.internals.locations import TensorflowLocations

    Report = Callable[[Device, Device, str], None]

__all__ = ["report_operators"]

_CONFLICT = re.compile(r"Tensors on conflicting devices: cannot compute (\S+) as .* was expected to be on (\S+) but ")
_ENTRIES = ("TFE_Py_FastPathExecute", "TFE_Py_Execute", "TFE_Py_ExecuteCancelable")
"""The functions that run every eager operator. The first takes inputs from argument four on, the others a list."""


@contextmanager
def report_operators(backend: TensorflowLocations, report: Report) -> Iterator[None]:
    """Report, inside the context, what TensorFlow's eager operators copy between devices."""
    entries = {name: _wrap_entry(getattr(pywrap_tfe, name), backend, report) for name in _ENTRIES}
    with patched(pywrap_tfe, entries):
        yield


def _wrap_entry(original: Any, backend: TensorflowLocations, report: Report) -> Any:
    def run(*args: Any) -> Any:
        context.ensure_initialized()
        if is_suppressed() or context.context().device_policy != context.DEVICE_PLACEMENT_SILENT:
            return original(*args)
        set_policy(context.DEVICE_PLACEMENT_SILENT_FOR_INT32)
        try:
            return original(*args)
        except FAILURES as error:
            conflict = _CONFLICT.search(str(getattr(error, "message", "")))
            if conflict is None:
                raise
        finally:
            set_policy(context.DEVICE_PLACEMENT_SILENT)
        target = backend.device_named(conflict[2])
        if target is not None:
            for source in _sources(backend, args[3:], target):
                report(source, target, conflict[1])
        return original(*args)

    return run


def _sources(backend: TensorflowLocations, inputs: Sequence[Any], target: Device) -> Iterator[Device]:
    """Yield the devices of tensors and arrays that are copied to a device; attributes after them are ignored."""
    for x in inputs:
        if isinstance(x, (list, tuple)):
            yield from _sources(backend, x, target)
        elif isinstance(x, np.ndarray):
            if x.ndim and target is not CPU:
                yield CPU
        elif type(x) is EAGER and x.ndim and x.dtype not in ON_HOST and backend.device_of(x) is not target:
            yield backend.device_of(x)
