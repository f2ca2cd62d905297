"""The gaps of NumPy, with reasons. Reading them does not import the rest of the adapter."""

from __future__ import annotations

from collections.abc import Mapping

from devshim.contract.backend import Gap

_NO_AUTOGRAD = "NumPy has no automatic differentiation"
_NO_COMPILER = "NumPy has no compiler; its functions run as they are written"

GAPS: Mapping[str, Gap] = {
    "gradient": Gap("never", _NO_AUTOGRAD),
    "op_scope": Gap("never", "NumPy's operators have no device scope; they follow their arguments"),
    "trace_device_of": Gap("never", _NO_COMPILER),
    "trace_place": Gap("never", _NO_COMPILER),
    "trace_run": Gap("never", _NO_COMPILER),
    "trace_on": Gap("never", _NO_COMPILER),
    "non_blocking": Gap("never", "NumPy's copies are done when they return"),
    "empty_cache": Gap("never", "NumPy keeps no memory for reuse that a device could get back"),
    "memory_policy": Gap("never", "NumPy takes memory as it needs it and has no cards"),
    "visible_devices": Gap("never", "NumPy has no cards to hide; simulated ones are counted"),
    "models": Gap("never", "NumPy has no models"),
}

LIMITS: Mapping[str, str] = {
    "simulate": (
        "arrays on simulated GPUs that were taken away are refused by NumPy's functions, operators and methods; not by "
        "np.asarray, np.array, memoryview and view(np.ndarray), which call no code of the array"
    ),
    "guard": "what Python reads of a simulated card's arrays, masks, host indices; not np.asarray, which asks nobody",
}
