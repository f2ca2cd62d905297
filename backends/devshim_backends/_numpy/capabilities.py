"""The gaps of NumPy, with reasons. Reading them does not import the rest of the adapter."""

from __future__ import annotations

from collections.abc import Mapping

from devshim.contract.backend import Gap

_NO_AUTOGRAD = "NumPy has no automatic differentiation"
_NO_COMPILER = "NumPy has no compiler"

GAPS: Mapping[str, Gap] = {
    "ranks": Gap(
        "never",
        "NumPy has no collectives over processes",
    ),
    "value_and_grad": Gap("never", _NO_AUTOGRAD),
    "higher_order": Gap("never", _NO_AUTOGRAD),
    "trace_gradient": Gap("never", _NO_COMPILER),
    "trace_gradient_models": Gap("never", _NO_COMPILER),
    "gradient": Gap("never", _NO_AUTOGRAD),
    "native_names": Gap("never", "NumPy has no names for GPUs, so there is nothing to route"),
    "op_scope": Gap("never", "NumPy's operators have no device scope; they follow their arguments"),
    "trace_device_of": Gap("never", _NO_COMPILER),
    "trace_place": Gap("never", _NO_COMPILER),
    "trace_run": Gap("never", _NO_COMPILER),
    "trace_on": Gap("never", _NO_COMPILER),
    "non_blocking": Gap("never", "NumPy's copies are complete when they return"),
    "empty_cache": Gap("never", "NumPy has no memory cache"),
    "memory_policy": Gap("never", "NumPy allocates memory as it needs it, and has no GPUs"),
    "visible_devices": Gap("never", "NumPy has no GPUs to hide; ds.simulate sets the number of simulated GPUs"),
    "data_parallel_models": Gap("never", "NumPy has no models"),
    "models": Gap("never", "NumPy has no models"),
}

LIMITS: Mapping[str, str] = {
    "simulate": (
        "NumPy's functions, operators and methods refuse arrays on simulated GPUs that were taken away; np.asarray, "
        "np.array, memoryview and view(np.ndarray), which call no code of the array, do not"
    ),
    "guard": (
        "Python's reads of arrays on simulated GPUs, masks, and host indices; not np.asarray, which calls no code of "
        "the array"
    ),
}

NOT_SIMULATED: Mapping[str, str] = {}
"""A native call, or the beginning of its name, that simulated GPUs cannot run -> why, and what to do instead."""
