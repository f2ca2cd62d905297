"""The gaps of CuPy and of this adapter, with reasons. Imports no framework, because the support table reads it."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from devshim.contract.backend import Gap

if TYPE_CHECKING:
    from collections.abc import Mapping

_NO_AUTOGRAD = "CuPy has no automatic differentiation"
_NO_COMPILER = "CuPy compiles kernels, and no functions of several devices"
_NO_SIMULATION = "CuPy makes its arrays by CUDA alone; ds.use('numpy') has simulated GPUs and the same functions"

GAPS: Mapping[str, Gap] = MappingProxyType(
    {
        "gradient": Gap("never", _NO_AUTOGRAD),
        "op_scope": Gap("never", "CuPy's operators take arrays of the current GPU alone; a scope moves creation"),
        "refuse_mixing": Gap(
            "upstream", "CuPy refuses arrays of two GPUs only where these cannot read each other's memory"
        ),
        "trace_device_of": Gap("never", _NO_COMPILER),
        "trace_place": Gap("never", _NO_COMPILER),
        "trace_run": Gap("never", _NO_COMPILER),
        "trace_on": Gap("never", _NO_COMPILER),
        "simulate": Gap("never", _NO_SIMULATION),
        "simulate_memory": Gap("never", _NO_SIMULATION),
        "simulate_limit": Gap("never", _NO_SIMULATION),
        "models": Gap("never", "CuPy has no models"),
    }
)

LIMITS: Mapping[str, str] = MappingProxyType(
    {
        "place": "arrays in host memory are NumPy's, and CuPy's while it is the current framework",
        "random": "a GPU that this process has not used yet is seeded at the first draw that devshim makes there",
        "guard": "what Python reads of a GPU's array, `get()`, masks, host indices; np.asarray CuPy refuses itself",
    }
)
