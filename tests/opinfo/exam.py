"""The exam of one operator: its samples on a GPU and on the host, forward, backward, in place and into ``out=``.

Every call starts from one seed, so that random operators are compared like all others. If the host refuses a call, the
GPU must refuse it. The GPU must also refuse an operator that CUDA does not have. Afterwards nothing may be left there.
"""

from __future__ import annotations

import gc
import random
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from call import Call, takes_out
from compare import HOST, Differs, require_alike, require_device
from known import CUDAS_DRIVERS, UNDEFINED
from torch.testing._internal.common_device_type import onlyCPU

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SEED = 20


@dataclass
class Report:
    """The results of one operator: how often each part passed, and the causes of the failures."""

    operator: str
    samples: int = 0
    refused: int = 0
    not_on_cuda: int = 0
    passed: dict[str, int] = field(default_factory=dict)
    inexact: int = 0
    causes: list[str] = field(default_factory=list)


def examine(operator: Any, gpu: torch.device, used: Callable[[], int], max_samples: int | None = None) -> Report:
    """Examine one operator.

    Args:
        operator: An ``OpInfo``.
        gpu: The GPU.
        used: Returns the bytes in use there.
        max_samples: The number of samples, starting with the first; None for all.
    """
    report = Report(operator.formatted_name)
    before = used()
    try:
        for on_gpu, host in _samples(operator, gpu, max_samples):
            sides = Sides({HOST: host, gpu: on_gpu}, operator.name not in UNDEFINED, report)
            if not is_on_cuda(operator):
                _examine_refusal(operator, on_gpu, report, NotImplementedError, "")
            elif not _has_driver(operator, on_gpu):
                _examine_refusal(operator, on_gpu, report, RuntimeError, "is not supported on CUDA")
            else:
                _examine_sample(operator, sides)
            report.samples += 1
    except Exception as error:
        report.causes.append(f"sample {report.samples} cannot be made: {_describe(error)}")
    host = on_gpu = sides = None
    if used() != before:
        gc.collect()  # a raised error refers to its frames, and they to the tensors
    if used() != before:
        report.causes.append(f"{used() - before} bytes are still in use on the GPU")
    return report


def _samples(operator: Any, gpu: torch.device, max_samples: int | None) -> Iterator[tuple[Call, Call]]:
    """Yield samples as PyTorch makes them for the GPU (some parts belong on the host), and copy them to the host."""
    # A few operators exist only for CUDA; if the host refuses them, the GPU must refuse them here, too.
    dtypes = operator.dtypes or operator.dtypesIfCUDA
    dtype = torch.float32 if torch.float32 in dtypes else min(dtypes, key=str)
    differentiable = operator.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
    _seed()
    for sample in islice(operator.sample_inputs(str(gpu), dtype, requires_grad=differentiable), max_samples):
        call = Call.from_sample(sample, gpu)
        yield call, call.on_host()


def is_on_cuda(operator: Any) -> bool:
    """Return True if the database says that CUDA has the operator: in some dtype, with tests not only for the CPU."""
    return bool(operator.dtypesIfCUDA) and onlyCPU not in operator.decorators


def _has_driver(operator: Any, call: Call) -> bool:
    """Return True if CUDA has the driver that a sample names, or if it names none."""
    driver = call.kwargs.get("driver")
    return driver is None or driver in CUDAS_DRIVERS.get(operator.name, {driver})


def _examine_refusal(operator: Any, call: Call, report: Report, kind: type[Exception], text: str) -> None:
    """Require the error that PyTorch has for an operator, or a driver, that a device lacks."""
    try:
        call.forward(operator)
    except kind as error:
        if text in str(error):
            report.not_on_cuda += 1
        else:
            report.causes.append(f"sample {report.samples}: refused for another reason: {_describe(error)}")
    else:
        report.causes.append(f"sample {report.samples}: the GPU computes what CUDA does not have")


def _seed() -> None:
    random.seed(SEED)
    np.random.seed(SEED)
    torch.manual_seed(SEED)


def _examine_sample(operator: Any, sides: Sides) -> None:
    results = sides.compare("forward", lambda call: call.forward(operator))
    if results is None:
        return
    sides.backward("backward", results)
    call, variant = sides.calls[HOST], operator.get_inplace()
    if variant is not None and isinstance(call.input, torch.Tensor) and not call.broadcasts:
        changed = sides.compare("in place", lambda call: call.in_place(variant))
        if changed is not None:
            sides.backward("in place, backward", changed)
    if operator.supports_out and takes_out(results[HOST]):
        for part, resized in (("out=", False), ("out= of no size", True)):
            sides.compare(part, lambda call, resized=resized: call.with_out(operator, results[HOST], resized))


@dataclass
class Sides:
    """A sample on both sides: each operation runs on both, and the results are compared."""

    calls: dict[torch.device, Call]
    defined: bool
    report: Report

    def compare(self, part: str, operation: Callable[[Call], Any]) -> dict[torch.device, Any] | None:
        """Run an operation on both sides; return both results, or None if nothing is left to compare."""
        results: dict[torch.device, Any] = {}
        refusals: dict[torch.device, str] = {}
        for device, call in self.calls.items():
            _seed()
            try:
                results[device] = operation(call)
            except Exception as error:
                refusals[device] = _describe(error)
        if len(refusals) == len(self.calls):
            self.report.refused += 1
            return None
        try:
            self._judge(part, results, refusals)
        except Differs as error:
            self.report.causes.append(f"sample {self.report.samples}, {part}: {error}")
            return None
        return results

    def backward(self, part: str, results: dict[torch.device, Any]) -> None:
        """Compare the gradients of both results."""
        if self.calls[HOST].leaves():
            self.compare(part, lambda call: call.gradients(results[call.device]))

    def _judge(self, part: str, results: dict[torch.device, Any], refusals: dict[torch.device, str]) -> None:
        for device, text in refusals.items():
            raise Differs(f"only {device} refuses: {text}")
        _, gpu = self.calls
        expected = gpu if "backward" in part else self.calls[gpu].target
        require_device(results[gpu], expected, "a result")
        if not require_alike(results[gpu], results[HOST], "the result", values=self.defined):
            self.report.inexact += 1
        self.report.passed[part] = self.report.passed.get(part, 0) + 1


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
