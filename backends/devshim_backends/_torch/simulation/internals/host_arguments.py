"""Conversion of a call's arguments to host tensors, and of its results back to the simulated GPU."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import torch

from devshim_backends._torch.simulation.device_rules import mixed_devices_error
from devshim_backends._torch.simulation.internals.relabel import HOST, relabel, to_host_keeping_bits
from devshim_backends._torch.simulation.internals.state import (
    SIMULATION,
    TYPES,
    current,
    gpu_name,
    index_of,
    removed_gpu_error,
)
from devshim_backends._torch.simulation.memory import adopt

if TYPE_CHECKING:
    from devshim_backends._torch.simulation.internals.schemas import OperatorPlan

_get_device = torch._C.TensorBase.get_device  # -1 on the host and on meta
_Tensor = torch.Tensor
_scalar_tensor = torch.ops.aten.scalar_tensor.default
_CPU = torch.device("cpu")

NOT_SIMULATED = -2
"""The target of a call that asks for its result on the host, or on no device."""


class ArgumentConverter:
    """The conversion of one operator call.

    Attributes:
        plan: The properties of the operator; after `convert_positional`, of its overload that takes the arguments.
        gpu: The index of the GPU that its tensors are on; -1 until one has been seen.
        target: The index of the GPU that the call asks for by ``device=``, `NOT_SIMULATED`, or -1 without ``device=``.
        gpu_position: The position of the first of these tensors, or -1.
        host: A host tensor that a real GPU would refuse here, or None; `host_position` is its position.
        originals: The `id` of each relabelled tensor -> the GPU's tensor, and the relabelled one.
    """

    __slots__ = ("gpu", "gpu_position", "host", "host_position", "originals", "plan", "target")

    def __init__(self, plan: OperatorPlan) -> None:
        self.plan = plan
        self.gpu = -1
        self.host: Any = None
        self.gpu_position = self.host_position = self.target = -1
        self.originals: dict[int, Any] = {}

    def convert_positional(self, args: tuple[Any, ...]) -> list[Any]:
        """Return positional arguments as host tensors."""
        converted = list(args)
        count = len(converted)
        has_numbers = False
        for position, is_list in self.plan.tensor_positions:
            if position >= count:
                break
            value = converted[position]
            if value is None:
                continue
            if is_list:
                converted[position] = [self.convert_tensor(each, position) for each in value]
            elif isinstance(value, _Tensor):
                converted[position] = self.convert_tensor(value, position)
            else:
                has_numbers = True
        if has_numbers and not self.plan.accepts_numbers:
            self._take_numbers(converted)
        return converted

    def convert_keywords(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return keyword arguments as host tensors; a device among them is the device of the result."""
        converted = {}
        for name, value in kwargs.items():
            if isinstance(value, torch.device):
                is_gpu = value.type in TYPES
                self.target = index_of(value) if is_gpu else NOT_SIMULATED
                value = _CPU if is_gpu else value
            elif name in self.plan.tensor_keywords and value is not None and not self._is_read_on_host(name, value):
                is_list = self.plan.tensor_keywords[name]
                value = [self.convert_tensor(v, -1) for v in value] if is_list else self.convert_tensor(value, -1)
            converted[name] = value
        return converted

    def _is_read_on_host(self, name: str, value: Any) -> bool:
        """Return True for a host tensor with one element, where a real GPU's kernel reads it."""
        return name in self.plan.host_keywords and _get_device(value) < 0 and value.numel() == 1

    def convert_tensor(self, value: Any, position: int) -> Any:
        """Return a tensor as a host tensor, and record its device; ``position`` is that of its argument, or -1."""
        if value is None:
            return None
        index = _get_device(value)
        if index >= 0:
            if index != self.gpu:
                if position == self.plan.value_position and self._may_be_elsewhere(value):
                    return self._value_of(value)
                self._require_same_gpu(index, position)
            host = to_host_keeping_bits(value) if self.plan.accepts_lazy_bits else relabel(value, HOST)
            self.originals[id(host)] = (value, host)  # the reference to `host` keeps its id from being reused
            return host
        if self.host is None and not self._accepts_host_tensor(value, position):
            self.host, self.host_position = value, position
        return value

    def choose_gpu(self, converted: list[Any]) -> int:
        """Return the GPU of the call, after all arguments are converted; ``converted`` are the positional ones."""
        gpu = self.gpu
        if gpu < 0:
            gpu = current() if self.target < 0 else self.target
        elif self.host is not None:
            host, position = self.host, self.host_position
            positions = self.gpu_position, position
            raise mixed_devices_error(self.plan, gpu_name(gpu), host.device, positions, host, converted)
        elif self.target >= 0:
            gpu = self.target
        if gpu >= SIMULATION.count:
            raise removed_gpu_error(gpu)
        return gpu

    def convert_results(self, result: Any, gpu: int) -> Any:
        """Return results as the GPU's: a changed argument is returned itself, everything else is a new tensor."""
        if isinstance(result, _Tensor):
            original = self.originals.get(id(result))
            if original is not None:
                return original[0]
            return result if self.target == NOT_SIMULATED else adopt(result, gpu)
        if isinstance(result, (tuple, list)):
            return type(result)([self.convert_results(each, gpu) for each in result])
        return result

    def _require_same_gpu(self, index: int, position: int) -> None:
        if self.gpu >= 0:
            positions = self.gpu_position, position
            raise mixed_devices_error(self.plan, gpu_name(self.gpu), gpu_name(index), positions)
        self.gpu, self.gpu_position = index, position

    def _may_be_elsewhere(self, value: Any) -> bool:
        """Return True if a value on another device than the first argument is read, or refused for its shape."""
        if self.plan.reads_value:
            return self.gpu >= 0 or not self.plan.name.startswith("aten::masked_fill")
        return not value.dim()

    def _value_of(self, value: Any) -> Any:
        """Return a value on another GPU as a host tensor; if all other tensors are on the host, the results are too."""
        if self.gpu < 0:
            self.target = NOT_SIMULATED
        if value.dim() or not (self.gpu < 0 or self.plan.reads_value):
            return relabel(value, HOST)
        from devshim_backends._torch.simulation.internals import kernels  # not above: it imports this module

        return _scalar_tensor(kernels.read(value), dtype=value.dtype, device=_CPU)

    def _accepts_host_tensor(self, value: Any, position: int) -> bool:
        """Return True if a real GPU's kernel would accept this host tensor in this position."""
        plan = self.plan
        is_written = position < 0 or (position == 0 and plan.is_inplace)
        if position == plan.value_position:
            return plan.reads_value or not value.dim()
        is_scalar = plan.accepts_host_scalars and not is_written and not value.dim()
        return is_scalar or position in plan.host_positions

    def _take_numbers(self, converted: list[Any]) -> None:
        """Choose the overload for Python numbers, to which PyTorch's boxing has converted its own 0-d tensors.

        Such a tensor does not change the dtype of the result, and may be out of that dtype's range.
        """
        positions = [n for n, is_list in self.plan.tensor_positions if not is_list and n < len(converted)]
        numbers = tuple(n for n in positions if isinstance(converted[n], (bool, int, float, complex)))
        plan = self.plan.for_numbers(numbers)
        if plan is None:
            self._make_tensors(converted, positions)
        else:
            self.plan = plan

    def _make_tensors(self, converted: list[Any], positions: list[int]) -> None:
        """Make tensors from Python numbers, each in the dtype that the result has anyway."""
        tensors = [converted[n] for n in positions if isinstance(converted[n], _Tensor)]
        numeric = [each for each in tensors if each.dtype is not torch.bool] or tensors
        for position in positions:
            number = converted[position]
            if isinstance(number, (bool, int, float, complex)):
                dtypes = [torch.result_type(each, number) for each in numeric]
                dtype = reduce(torch.promote_types, dtypes) if dtypes else None
                converted[position] = _scalar_tensor(number, dtype=dtype, device=_CPU)
