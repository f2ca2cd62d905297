"""The features that a backend may support, and `Gap`, the value with which it declares that it lacks one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from devshim.errors import UnsupportedError

if TYPE_CHECKING:
    from devshim.contract.backend import Backend

FEATURES: Mapping[str, str] = {
    "count": "counting and describing devices before the framework starts",
    "place": "moving a tensor: the same object if it is already there, and the result's device is checked",
    "copy": "new memory from every call with `copy=True`",
    "gradient": "gradients through `place` and `copy`",
    "value_and_grad": "gradients of functions by `value_and_grad`",
    "higher_order": "`value_and_grad` inside the function of another `value_and_grad`",
    "missing_device": "an immediate error for a device that does not exist",
    "numpy": "conversion to and from NumPy without aliasing and without a change of dtype",
    "float64": "64-bit floats and integers at full width",
    "bfloat16": "bfloat16 tensors: creation, moves and conversion",
    "float16": "float16 tensors: creation, moves and conversion",
    "bool": "boolean tensors: creation, moves and conversion",
    "complex": "complex tensors: creation, moves and conversion",
    "create": "creation on a device: asarray, zeros, ones, full, empty, arange, linspace, eye, *_like",
    "random": "random numbers on a device, with one seed for all devices",
    "generator": "a program's own random generators, which draw on a device (`random.Generator`)",
    "convert": "conversion from and to other frameworks",
    "zero_copy": "conversion without a copy if both frameworks can use the device (DLPack)",
    "op_scope": "`on(D)` for the framework's own operators, not only for creation",
    "follow_data": "`run` on the device of its arguments",
    "refuse_mixing": "an error if the framework's own operators get arguments on different devices",
    "trace_device_of": "`device_of` inside a compiled function",
    "trace_place": "`place` inside a compiled function",
    "trace_run": "`run` inside a compiled function",
    "trace_on": "`on` inside a compiled function",
    "trace_gradient": "`value_and_grad` inside a compiled function",
    "trace_gradient_models": "`value_and_grad` of a model inside a compiled function",
    "non_blocking": "copies that overlap with other work (`non_blocking=True`)",
    "memory": "used and free memory of a device",
    "empty_cache": "releasing cached memory",
    "memory_policy": "a limit to the memory that the framework reserves at first use",
    "visible_devices": "hiding GPUs before the framework starts",
    "simulate": "simulated GPUs on a machine without GPUs",
    "simulate_memory": "simulated GPUs that count their memory, run out of it, and fail on request",
    "simulate_limit": "the memory limit of a simulated GPU in the framework's own operators",
    "native_names": "simulated GPUs under the framework's own names (`native_names=True`)",
    "guard": "reports of implicit transfers",
    "models": "moving whole models and optimizers, all or nothing",
    "several": "split, gather, broadcast and reduce over several devices",
    "ranks": "sums over the ranks of a job by the framework's own collectives",
    "data_parallel": "`data_parallel` of a function",
    "data_parallel_models": "`data_parallel` of a model, with gradients",
    "checkpoints": "saving and loading models, optimizers and trees",
    "explain": "the native line for each call",
    "namespace": "the array-API namespace (`ds.namespace`)",
}
"""A feature that a backend may support -> its name in the support table, and in "... does not support ..."."""


@dataclass(frozen=True)
class Gap:
    """A feature that a backend lacks, with the reason.

    Attributes:
        kind: ``"planned"``: devshim will add it; ``"upstream"``: the framework lacks it today; ``"never"``: the
            framework makes it impossible.
        reason: A sentence fragment that can follow a colon, with the issue or version where one is known.
        instead: What a program can do in its place, as an imperative clause, which becomes the error's hint. Empty if
            the framework has no other way.
    """

    kind: Literal["planned", "upstream", "never"]
    reason: str
    instead: str = ""


Gap.__module__ = "devshim.contract.backend"

__all__ = ["FEATURES", "Gap"]


OPTIONAL: Mapping[str, str] = {
    "op_scope": "scope",
    "trace_device_of": "is_tracer",
    "trace_place": "is_tracer",
    "trace_run": "is_tracer",
    "trace_on": "is_tracer",
    "trace_gradient": "is_tracer",
    "trace_gradient_models": "is_tracer",
    "value_and_grad": "differentiate",
    "higher_order": "differentiate",
    "memory": "memory",
    "empty_cache": "empty_cache",
    "memory_policy": "memory_policy",
    "visible_devices": "set_visible",
    "simulate": "simulate",
    "simulate_memory": "simulate",
    "simulate_limit": "simulate",
    "native_names": "set_native_names",
    "guard": "report_implicit_transfers",
    "models": "leaves",
    "several": "narrow",
    "ranks": "start_ranks",
    "data_parallel": "narrow",
    "data_parallel_models": "link_parameters",
    "zero_copy": "from_dlpack",
    "explain": "snippets",
    "namespace": "array_api",
}
"""A feature that has no default -> the method or attribute of `Backend` that an adapter writes for it."""


def undeclared_gaps(backend: Backend, contract: type[Backend]) -> dict[str, Gap]:
    """Return a gap for each optional feature that an adapter does not write, and does not declare a gap in."""
    cls, gaps = type(backend), {}
    for feature, name in OPTIONAL.items():
        if feature not in backend.gaps and getattr(cls, name) is getattr(contract, name):
            # Without a compiler there is nothing to test: a gap of kind "never" asks the kit for no hook.
            kind: Literal["planned", "never"] = "never" if name == "is_tracer" else "planned"
            gaps[feature] = Gap(kind, f"its adapter does not define `{name}`")
    return gaps


def unsupported_error(backend: Backend, feature: str) -> UnsupportedError:
    """Return the error for a call that needs a feature that the backend declares as a gap."""
    gap = backend.gaps.get(feature, Gap("planned", "its adapter does not define it yet"))
    hints = {
        "planned": "use another backend: ds.backends() lists them; a later devshim may support this",
        "upstream": f"do this step outside devshim, or use another backend; {backend.title} must support it first",
        "never": "do this step outside devshim, or use another backend: ds.backends() lists them",
    }
    problem = f"{backend.title} does not support {FEATURES[feature]}: {gap.reason}"
    return UnsupportedError(problem, gap.instead or hints[gap.kind])
