"""The properties of an operator that the dispatcher needs, read once from its schema."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from devshim_backends._torch.simulation.device_rules import HOST_NAMES, HOST_PLACES, HOST_SCALARS, INDEXED


def _several(argument: Any) -> bool | None:
    """Return True if an argument contains several tensors, False if it is one tensor, and None if it is neither."""
    kind = str(argument.type)  # Tensor, Optional[Tensor], List[Tensor], List[Optional[Tensor]], ...
    return "List" in kind if "Tensor" in kind else None


class Plan:
    """The properties of one operator.

    Attributes:
        call: The operator, through the dispatcher.
        kernel: The same, at a dispatch key.
        name: Its name, such as ``aten::add.Tensor``.
        view: True if its results are views of an argument.
        places: The position of every argument that may contain tensors; True with it for a list of them.
        named: The same for keyword arguments.
        out: Names of the arguments that it writes results into.
        inplace: True if it changes its first argument and returns it.
        generator: Name of the argument for a generator, if it draws random numbers.
        numbers: True if it accepts Python numbers where its schema says tensor.
        scalars: True if, on a real GPU, it accepts 0-d host tensors together with the GPU's tensors.
        indexes: True if its indices are a list of tensors.
        hosts: Positions of arguments that may be on the host.
        host_names: Names of arguments that may be on the host.
        lazy: True if it may receive tensors with a pending conjugation or negation.
        plain: True if it only computes: no writing, no view, no random numbers.
        writes: True if it writes to an argument.
    """

    __slots__ = (
        *(
            "call",
            "generator",
            "host_names",
            "hosts",
            "indexes",
            "inplace",
            "kernel",
            "lazy",
            "name",
            "named",
            "numbers",
            "out",
            "places",
        ),
        *("plain", "scalars", "view", "writes"),
    )

    def __init__(self, op: Any) -> None:
        schema = op._schema
        self.call = op._op
        self.kernel = op._op_dk
        self.name = str(schema.name)
        arguments = list(enumerate(schema.arguments))
        kinds = [(n, _several(a), a) for n, a in arguments]
        self.places = tuple((n, kind) for n, kind, a in kinds if kind is not None and not a.kwarg_only)
        self.named = {a.name: kind for _, kind, a in kinds if kind is not None}
        self.out = tuple(a.name for _, a in arguments if a.kwarg_only and _written(a))
        self.writes = any(_written(a) for _, a in arguments)
        returned = schema.returns
        self.view = any(r.alias_info is not None and not r.alias_info.is_write for r in returned)
        first = bool(arguments) and _written(arguments[0][1])
        self.inplace = not self.out and first and len(returned) == 1 and _written(returned[0])
        self.generator = next((a.name for _, a in arguments if str(a.type) == "Optional[Generator]"), None)
        plain = self.name.partition("::")[2]
        self.numbers = torch._C._should_allow_numbers_as_tensors(plain)
        self.scalars = torch.Tag.pointwise in op.tags or plain in HOST_SCALARS
        self.hosts = HOST_PLACES.get(plain, frozenset())
        self.host_names = HOST_NAMES.get(plain, frozenset())
        self.indexes = plain in INDEXED
        self.lazy = self.name in _resolves_itself() or f"{self.name}.{schema.overload_name}" in _resolves_itself()
        self.plain = not (self.view or self.out or self.writes or self.generator)


@cache
def _resolves_itself() -> frozenset[str]:
    """Return the operators before which PyTorch does not resolve a conjugation or negation, as their kernels do."""
    found = torch._C._dispatch_get_registrations_for_dispatch_key
    return frozenset([*found("Conjugate"), *found("Negative")])


def _written(argument: Any) -> bool:
    return argument.alias_info is not None and bool(argument.alias_info.is_write)


PLANS: dict[Any, Plan] = {}
"""The plans of operators seen so far. Written without a lock: at worst, two threads make the same plan twice."""


def plan_of(op: Any) -> Plan:
    """Return an operator's plan."""
    plan = PLANS.get(op)
    if plan is None:
        plan = PLANS[op] = Plan(op)
    return plan


@cache
def sparse_plan_of(op: Any) -> Plan:
    """Return an operator's plan for a call with a sparse tensor: it checks each tensor before relabelling."""
    plan = Plan(op)
    plan.lazy = True
    return plan
