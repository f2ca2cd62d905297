"""The properties of an operator that the dispatcher needs, read once from its schema."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from devshim_backends._torch.simulation.device_rules import (
    CHECKED,
    COPIED_VALUES,
    HOST_KEYWORDS,
    HOST_POSITIONS,
    HOST_SCALARS,
    INDEXED,
    READ_VALUES,
)
from devshim_backends._torch.simulation.internals import cpu_only, nested, quantized


def _list_of_tensors(argument: Any) -> bool | None:
    """Return True if an argument contains several tensors, False if it is one tensor, and None if it is neither."""
    kind = str(argument.type)  # Tensor, Optional[Tensor], List[Tensor], List[Optional[Tensor]], ...
    return "List" in kind if "Tensor" in kind else None


class OperatorPlan:
    """The properties of one operator.

    Attributes:
        call: The operator, through the dispatcher.
        kernel: The same, at a dispatch key.
        name: Its name, such as ``aten::add.Tensor``.
        is_view: True if its results are views of an argument.
        tensor_positions: The position of every argument that may contain tensors; True with it for a list of them.
        tensor_keywords: The same for keyword arguments, by name.
        out_names: Names of the arguments that it writes results to.
        is_inplace: True if it changes its first argument and returns it.
        generator_name: Name of the argument for a generator, if it draws random numbers.
        accepts_numbers: True if it accepts Python numbers for tensors of its schema.
        accepts_host_scalars: True if, on a real GPU, it accepts 0-d host tensors together with the GPU's tensors.
        value_position: Position of a value that may be on any device, if it is 0-d or an error anyway; None if none is.
        reads_value: True if it reads the number of that value.
        takes_indices: True if its indices are a list of tensors.
        host_positions: Positions of arguments that may be on the host.
        host_keywords: Names of arguments that may be on the host.
        accepts_lazy_bits: True if it may receive tensors with a pending conjugation or negation.
        only_computes: True if it does not write to arguments, return a view or draw random numbers.
        is_common: True if it takes tensors, and only computes, or changes its first argument without drawing numbers.
        keywords_are_plain: True if no keyword argument is a tensor or a generator.
        writes_to_arguments: True if it writes to an argument.
        written_positions: Positions of the single tensors that it writes to.
    """

    __slots__ = (
        *("accepts_host_scalars", "accepts_lazy_bits", "accepts_numbers", "call", "generator_name", "host_keywords"),
        *("host_positions", "is_common", "is_inplace", "is_view", "kernel", "keywords_are_plain", "name"),
        *("only_computes", "out_names", "takes_indices", "tensor_keywords", "tensor_positions", "writes_to_arguments"),
        *("_op", "_plans_for_numbers", "reads_value", "value_position", "written_positions"),
    )

    def __init__(self, op: Any) -> None:
        self._op = op
        self._plans_for_numbers: dict[tuple[int, ...], OperatorPlan | None] = {}
        self.call, self.kernel, self.name = op._op, op._op_dk, str(op._schema.name)
        self._read_schema(op._schema.arguments, op._schema.returns)
        self.only_computes = not (self.is_view or self.out_names or self.writes_to_arguments or self.generator_name)
        in_place = self.is_inplace and not self.generator_name
        self.is_common = bool(self.tensor_positions) and (self.only_computes or in_place)
        name = self.name.partition("::")[2]
        self.accepts_numbers = torch._C._should_allow_numbers_as_tensors(name)
        is_elementwise = torch.Tag.pointwise in op.tags and name not in CHECKED
        self.accepts_host_scalars = is_elementwise or name in HOST_SCALARS
        self.host_positions = HOST_POSITIONS.get(name, frozenset())
        self.host_keywords = HOST_KEYWORDS.get(name, frozenset())
        self.takes_indices = name in INDEXED
        self.reads_value = name in READ_VALUES
        self.value_position = READ_VALUES.get(name, COPIED_VALUES.get(name))
        names = {self.name, f"{self.name}.{op._schema.overload_name}"}
        self.accepts_lazy_bits = not names.isdisjoint(_list_lazy_bit_operators())

    def for_numbers(self, positions: tuple[int, ...]) -> OperatorPlan | None:
        """Return the plan of the overload that takes numbers at these positions instead of tensors; None without one.

        PyTorch has most operators of two tensors also for a tensor and a number: ``aten::remainder.Scalar``.
        """
        if positions not in self._plans_for_numbers:
            wanted = [("number" if n in positions else kind, name) for n, (kind, name) in enumerate(_types(self._op))]
            packet = self._op.overloadpacket
            found = (op for op in (getattr(packet, name) for name in packet.overloads()) if _types(op) == wanted)
            self._plans_for_numbers[positions] = next(map(plan_of, found), None)
        return self._plans_for_numbers[positions]

    def _read_schema(self, arguments: Any, returned: Any) -> None:
        kinds = [(n, _list_of_tensors(a), a) for n, a in enumerate(arguments)]
        self.tensor_positions = tuple((n, kind) for n, kind, a in kinds if kind is not None and not a.kwarg_only)
        self.tensor_keywords = {a.name: kind for _, kind, a in kinds if kind is not None}
        keyword_types = " ".join(str(a.type) for a in arguments if a.kwarg_only)
        self.keywords_are_plain = "Tensor" not in keyword_types and "Generator" not in keyword_types
        self.out_names = tuple(a.name for a in arguments if a.kwarg_only and _is_written(a))
        self.writes_to_arguments = any(map(_is_written, arguments))
        self.written_positions = tuple(
            n for n, kind, a in kinds if kind is False and not a.kwarg_only and _is_written(a)
        )
        self.is_view = any(r.alias_info is not None and not r.alias_info.is_write for r in returned)
        writes_first = bool(arguments) and _is_written(arguments[0])
        self.is_inplace = not self.out_names and writes_first and len(returned) == 1 and _is_written(returned[0])
        self.generator_name = next((a.name for a in arguments if str(a.type) == "Optional[Generator]"), None)


def _types(op: Any) -> list[tuple[str, str]]:
    """Return the type of each argument of an operator, and its name if it is a keyword."""
    return [(str(each.type), each.name if each.kwarg_only else "") for each in op._schema.arguments]


@cache
def _list_lazy_bit_operators() -> frozenset[str]:
    """Return the operators before which PyTorch does not resolve a conjugation or negation, as their kernels do."""
    registered = torch._C._dispatch_get_registrations_for_dispatch_key
    return frozenset([*registered("Conjugate"), *registered("Negative")])


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and bool(argument.alias_info.is_write)


PLANS: dict[Any, OperatorPlan] = {}
"""The plans of operators seen so far. Written without a lock: at worst, two threads make the same plan twice."""


def plan_of(op: Any) -> OperatorPlan:
    """Return an operator's plan.

    Raises:
        NotImplementedError: The program has defined the operator without a kernel for GPUs.
    """
    plan = PLANS.get(op)
    if plan is None:
        cpu_only.require_cuda_kernel(op)
        plan = PLANS[op] = OperatorPlan(op)
    return plan


@cache
def sparse_plan_of(op: Any) -> OperatorPlan:
    """Return an operator's plan for a call with a sparse tensor: it checks each tensor before relabelling."""
    for form in ("Sparse", "SparseCsr"):
        cpu_only.require_cuda_kernel(op, form)
    plan = OperatorPlan(op)
    plan.accepts_lazy_bits = True
    return plan


@cache
def nested_plan_of(op: Any) -> OperatorPlan:
    """Return an operator's plan for a call with a nested tensor."""
    cpu_only.require_cuda_kernel(op, nested.FORM)
    return OperatorPlan(op)


@cache
def quantized_plan_of(op: Any) -> OperatorPlan:
    """Return an operator's plan for a call with a quantized tensor."""
    cpu_only.require_cuda_kernel(op, quantized.FORM)
    return OperatorPlan(op)
