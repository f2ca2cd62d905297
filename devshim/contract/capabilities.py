"""The features that a backend may support, and `Gap`, the value with which it declares that it lacks one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from devshim.errors import UnsupportedError

if TYPE_CHECKING:
    from devshim.contract.backend import Backend

FEATURES: Mapping[str, str] = {
    "count": "count devices and describe them without starting the framework",
    "place": "move a tensor; the same object when it is already there; the result's device is checked",
    "copy": "`copy=True` gives new memory, always",
    "gradient": "gradients flow through `place` and `copy`",
    "missing_device": "a device that does not exist is refused at the call",
    "numpy": "to and from NumPy without aliasing and without a change of dtype",
    "float64": "64-bit floats and integers keep their width",
    "bfloat16": "bfloat16 tensors are created, moved and converted",
    "float16": "float16 tensors are created, moved and converted",
    "bool": "boolean tensors are created, moved and converted",
    "complex": "complex tensors are created, moved and converted",
    "create": "create on a device: asarray, zeros, ones, full, empty, arange, linspace, eye, *_like",
    "random": "draw on a device, with one seed for all",
    "convert": "convert from and to other frameworks",
    "zero_copy": "convert without a copy where both sides share the device (DLPack)",
    "op_scope": "`on(D)` also moves the framework's own operators, not only creation",
    "follow_data": "`run` computes where its arguments live",
    "refuse_mixing": "the framework's own operators refuse arguments on different devices",
    "trace_device_of": "`device_of` inside a compiled function",
    "trace_place": "`place` inside a compiled function",
    "trace_run": "`run` inside a compiled function",
    "trace_on": "`on` inside a compiled function",
    "non_blocking": "`non_blocking=True` overlaps a copy with other work",
    "memory": "used and free memory of a device",
    "empty_cache": "give cached memory back",
    "memory_policy": "keep the framework from taking a whole card at first use",
    "visible_devices": "hide cards before the framework starts",
    "simulate": "simulated GPUs on a machine without one",
    "simulate_memory": "simulated GPUs count their memory, run out of it, and fail when asked to",
    "simulate_limit": "the framework's own operators find a simulated GPU full",
    "guard": "tell of copies between devices that the framework makes unasked",
    "models": "move whole models and optimizers, all of them or nothing",
    "several": "split, gather, broadcast, reduce over several devices",
    "checkpoints": "save and load models, optimizers and trees",
    "explain": "the native line that each call stands for",
}
"""The features that a backend may support, each in the words of the support table."""


@dataclass(frozen=True)
class Gap:
    """A feature that a backend lacks, with the reason.

    Attributes:
        kind: ``"planned"``: devshim will add it; ``"upstream"``: the framework lacks it today; ``"never"``: the
            framework makes it impossible.
        reason: A sentence fragment that can follow a colon, with the issue or version where one is known.
    """

    kind: Literal["planned", "upstream", "never"]
    reason: str


Gap.__module__ = "devshim.contract.backend"

__all__ = ["FEATURES", "Gap"]


OPTIONAL: Mapping[str, str] = {
    "op_scope": "scope",
    "trace_device_of": "is_tracer",
    "trace_place": "is_tracer",
    "trace_run": "is_tracer",
    "trace_on": "is_tracer",
    "memory": "memory",
    "empty_cache": "empty_cache",
    "memory_policy": "memory_policy",
    "visible_devices": "set_visible",
    "simulate": "simulate",
    "simulate_memory": "simulate",
    "simulate_limit": "simulate",
    "guard": "report_implicit_transfers",
    "models": "leaves",
    "several": "narrow",
    "zero_copy": "from_dlpack",
    "explain": "snippets",
}
"""A feature that has no default -> the method or attribute of `Backend` that an adapter writes for it."""


def undeclared(backend: Backend, contract: type[Backend]) -> dict[str, Gap]:
    """Return a gap for each optional feature that an adapter does not write, and does not declare a gap in."""
    cls, found = type(backend), {}
    for feature, name in OPTIONAL.items():
        if feature not in backend.gaps and getattr(cls, name) is getattr(contract, name):
            # Without a compiler there is nothing to test: a gap of kind "never" asks the kit for no hook.
            kind: Literal["planned", "never"] = "never" if name == "is_tracer" else "planned"
            found[feature] = Gap(kind, f"its adapter does not define `{name}`")
    return found


def unsupported(backend: Backend, feature: str) -> UnsupportedError:
    """Return the error for a call that needs a feature that the backend declares as a gap."""
    gap = backend.gaps.get(feature, Gap("planned", "its adapter does not define it yet"))
    again = {
        "planned": "devshim plans this: see CHANGELOG.md",
        "upstream": f"{backend.title} has to offer this first",
        "never": "do this step outside devshim, or on another backend: ds.backends() lists them",
    }
    return UnsupportedError(f"{backend.title} cannot {_verb(FEATURES[feature])}: {gap.reason}", again[gap.kind])


def _verb(feature: str) -> str:
    return f"keep the promise «{feature}»"
