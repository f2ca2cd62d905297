"""Tests that the exam of operators can fail: each examines an operator with one fault, and checks the cause."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import devshim as ds

sys.path.insert(0, str(Path(__file__).parent))

import exam
import outcome
from torch.testing._internal.opinfo.core import SampleInput

REFERENCES: list[Any] = []


@dataclass
class Operator:
    """The part of an ``OpInfo`` that the exam uses, over a function that may behave differently on the GPU."""

    function: Any
    inplace: Any = None
    supports_out: bool = False
    name: str = "made_up"
    formatted_name: str = "made_up"
    dtypes: tuple[torch.dtype, ...] = (torch.float32,)
    supports_autograd: bool = True
    dtypesIfCUDA: tuple[torch.dtype, ...] = (torch.float32,)
    decorators: tuple[Any, ...] = ()

    def __call__(self, *args, **kwargs):
        return self.function(*args, **kwargs)

    def get_inplace(self):
        return self.inplace

    def sample_inputs(self, device, dtype, requires_grad):
        yield SampleInput(torch.arange(1.0, 5, device=device, dtype=dtype, requires_grad=requires_grad))


@pytest.fixture(autouse=True, scope="module")
def gpu():
    ds.use("torch")
    with ds.simulate(gpus=2):
        yield ds.gpu(1).native()
    ds.use(None)


def causes(operator, gpu):
    return exam.examine(operator, gpu, lambda: ds.memory("gpu:1").used).causes


def on_gpu(x):
    return x.device.type != "cpu"


class Doubled(torch.autograd.Function):
    """Twice its input, with another gradient on the GPU."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * (3 if on_gpu(gradient) else 2)


def refuse_gpu(x):
    if on_gpu(x):
        raise RuntimeError("not here")
    return x * 2


def refuse_host(x):
    if not on_gpu(x):
        raise RuntimeError("not here")
    return x * 2


def keep(x):
    REFERENCES.append(x.detach() * 2)
    return x * 2


def write_elsewhere(x, out=None):
    if out is None or not on_gpu(x):
        return torch.mul(x, 2, out=out)
    return torch.mul(x, 2)


def test_an_operator_without_faults_passes(gpu):
    report = exam.examine(Operator(torch.exp, torch.exp_, True), gpu, lambda: ds.memory("gpu:1").used)
    assert report.causes == []
    assert set(report.passed) == {"forward", "backward", "in place", "in place, backward", "out=", "out= of no size"}
    assert report.inexact == 0


@pytest.mark.parametrize(
    ("operator", "cause"),
    [
        (Operator(lambda x: x * (2 + 1e-3 * on_gpu(x))), "forward: the result has other values"),
        (Operator(lambda x: (x * 2).cpu()), "forward: a result is on cpu, not on"),
        (Operator(lambda x: (x * 2).to("sim:0") if on_gpu(x) else x * 2), "forward: a result is on sim:0, not on"),
        (Operator(lambda x: (x * 2).double() if on_gpu(x) else x * 2), "has dtype torch.float64"),
        (Operator(lambda x: x.detach() if on_gpu(x) else x), "has requires_grad False"),
        (Operator(lambda x: (x,) if on_gpu(x) else x), "forward: the result is"),
        (Operator(lambda x: 3 if on_gpu(x) else 2), "forward: the result is 3, on the host 2"),
        (Operator(refuse_gpu), "forward: only sim:1 refuses: RuntimeError: not here"),
        (Operator(refuse_host), "forward: only cpu refuses: RuntimeError: not here"),
        (Operator(Doubled.apply), "backward: the result has other values"),
        (Operator(torch.exp, lambda x: x.exp_().add_(int(on_gpu(x)))), "in place: the result has other values"),
        (Operator(write_elsewhere, supports_out=True), "out=: "),
        (Operator(keep), "bytes are still in use on the GPU"),
    ],
)
def test_a_fault_is_found(gpu, operator, cause):
    reported = causes(operator, gpu)
    REFERENCES.clear()
    assert any(cause in each for each in reported), reported


def test_an_inplace_operator_must_return_its_argument(gpu):
    reported = causes(Operator(torch.exp, lambda x: x.exp() if on_gpu(x) else x.exp_()), gpu)
    assert any("in place: only sim:1 refuses: Differs" in each for each in reported), reported


def test_calls_that_both_refuse_are_counted(gpu):
    def refuse(x):
        raise RuntimeError("nowhere")

    report = exam.examine(Operator(refuse), gpu, lambda: 0)
    assert (report.refused, report.passed, report.causes) == (1, {}, [])


@pytest.mark.parametrize("lacking", [{"dtypesIfCUDA": ()}, {"decorators": (exam.onlyCPU,)}])
def test_what_cuda_does_not_have_must_be_refused(gpu, lacking):
    def refuse(x):
        raise NotImplementedError("Could not run ...")

    report = exam.examine(Operator(refuse, **lacking), gpu, lambda: 0)
    assert (report.not_on_cuda, report.passed, report.causes) == (1, {}, [])
    assert causes(Operator(torch.exp, **lacking), gpu) == ["sample 0: the GPU computes what CUDA does not have"]


def test_a_driver_that_cuda_does_not_have_must_be_refused(gpu):
    def with_driver(function):
        operator = Operator(function, name="linalg.lstsq")
        operator.sample_inputs = lambda device, dtype, requires_grad: iter(
            [SampleInput(torch.ones(2, device=device, dtype=dtype), kwargs={"driver": "gelsd"})]
        )
        return operator

    def refuse(text):
        def function(x, driver):
            raise RuntimeError(text)

        return function

    report = exam.examine(with_driver(refuse("`driver` is not supported on CUDA")), gpu, lambda: 0)
    assert (report.not_on_cuda, report.passed, report.causes) == (1, {}, [])
    assert causes(with_driver(lambda x, driver: x), gpu) == ["sample 0: the GPU computes what CUDA does not have"]
    assert "refused for another reason" in causes(with_driver(refuse("a fault")), gpu)[0]


def test_an_outcome_that_differs_from_the_known_one_fails(monkeypatch):
    def report(name, *causes, samples=1):
        return {"operator": name, "samples": samples, "causes": list(causes)}

    monkeypatch.setattr(outcome, "KNOWN", {"listed": "a cause"})
    monkeypatch.setattr(outcome, "ALLOWED", 1)
    assert outcome.unexpected([report("fine"), report("listed", "so")]) == []
    assert outcome.unexpected([report("fine"), report("listed")]) == ["listed is known to fail, and passes"]
    assert "other fails, and is not known to" in outcome.unexpected([report("other", "so")])
    assert "2 operators fail, and 1 may" in outcome.unexpected([report("other", "so"), report("listed", "so")])
    assert outcome.unexpected([report("listed", "so"), report("none", samples=0)]) == ["none has no samples"]
