"""The gaps of CuPy and of this adapter, with reasons. Imports no framework, because the support table reads it."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from devshim.contract.backend import Gap

if TYPE_CHECKING:
    from collections.abc import Mapping

_NO_AUTOGRAD = "CuPy has no automatic differentiation"
_NO_COMPILER = "CuPy compiles kernels, but not whole functions"
_NO_SIMULATION = "CuPy creates its arrays only with CUDA; ds.use('numpy') has simulated GPUs and the same functions"

GAPS: Mapping[str, Gap] = MappingProxyType(
    {
        "ranks": Gap(
            "planned",
            "CuPy's collectives over processes need NCCL and two cards, and were not tested there",
        ),
        "value_and_grad": Gap("never", _NO_AUTOGRAD),
        "higher_order": Gap("never", _NO_AUTOGRAD),
        "trace_gradient": Gap("never", _NO_COMPILER),
        "trace_gradient_models": Gap("never", _NO_COMPILER),
        "gradient": Gap("never", _NO_AUTOGRAD),
        "op_scope": Gap("never", "CuPy's operators accept only arrays on the current GPU; a scope changes creation"),
        "refuse_mixing": Gap(
            "upstream", "CuPy refuses arrays on two GPUs only if these cannot read each other's memory"
        ),
        "trace_device_of": Gap("never", _NO_COMPILER),
        "trace_place": Gap("never", _NO_COMPILER),
        "trace_run": Gap("never", _NO_COMPILER),
        "trace_on": Gap("never", _NO_COMPILER),
        "simulate": Gap("never", _NO_SIMULATION),
        "native_names": Gap("never", _NO_SIMULATION),
        "simulate_memory": Gap("never", _NO_SIMULATION),
        "simulate_limit": Gap("never", _NO_SIMULATION),
        "data_parallel_models": Gap("never", "CuPy has no models"),
        "models": Gap("never", "CuPy has no models"),
    }
)

LIMITS: Mapping[str, str] = MappingProxyType(
    {
        "place": "arrays in host memory are NumPy arrays, and belong to CuPy while it is the current framework",
        "random": "a GPU that this process has not used yet is seeded when devshim first draws on it",
        "guard": "Python's reads of arrays on a GPU, `get()`, masks, and host indices; CuPy itself refuses np.asarray",
    }
)

NOT_SIMULATED: Mapping[str, str] = MappingProxyType({})
"""A native call, or the beginning of its name, that simulated GPUs cannot run -> why, and what to do instead."""
