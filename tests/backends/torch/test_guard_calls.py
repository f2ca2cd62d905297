"""Tests of the guard on PyTorch: a user's own calls under it, also compiled ones, and that it leaves nothing behind."""

from __future__ import annotations

import contextlib
import sys
from typing import ClassVar

import pytest
import torch

import devshim as ds


@pytest.fixture(scope="module", autouse=True)
def _compiled_functions_are_dropped():
    yield
    torch._dynamo.reset()


pytestmark = pytest.mark.usefixtures("two_cards")


@pytest.fixture
def x():
    return torch.arange(1.0, 4.0, device="sim:1")


def report_of(call, *args):
    """Return the report about a call: its reason, and the line."""
    with ds.guard("error"), pytest.raises(ds.TransferError) as caught:
        call(*args)
    reason, _, at = caught.value.problem.rpartition(" (an implicit transfer) at ")
    return reason.partition("PyTorch copies from ")[2], at


def first_line(call):
    return f"{__file__}:{call.__code__.co_firstlineno}"


# ---------------------------------------------------------------------- nothing else changes
def test_tensors_are_not_sequences_during_and_after_a_guard():
    """A ``__getitem__`` set on the class from Python would make them sequences, which `torch.tensor` iterates over."""
    losses = [torch.tensor(1.0), torch.nn.Parameter(torch.tensor(2.0), requires_grad=False)]
    with ds.guard("error"):
        born = type("Born", (torch.Tensor,), {})
        assert torch.tensor(losses).tolist() == [1.0, 2.0]
    assert torch.tensor(losses).tolist() == [1.0, 2.0]
    assert torch.tensor([losses[0].as_subclass(born)]).tolist() == [1.0]


class Seen(torch.Tensor):
    """Tensors whose handler records the calls that it gets."""

    calls: ClassVar[list[str]] = []

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        cls.calls.append(function.__name__)
        return super().__torch_function__(function, types, args, kwargs or {})


class SeenByMode(torch.overrides.TorchFunctionMode):
    """A mode that records the calls that it gets."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        Seen.calls.append(function.__name__)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("read", [float, int, bool, repr, complex, torch.Tensor.item, torch.Tensor.tolist])
@pytest.mark.parametrize("mode", [False, True])
def test_a_handler_gets_no_calls_of_a_guard(read, mode):
    """The guard itself asks a tensor for its device."""
    scalar = torch.ones((), device="sim:1")
    scalar = scalar if mode else scalar.as_subclass(Seen)

    def calls():
        with SeenByMode() if mode else contextlib.nullcontext():
            Seen.calls.clear()
            read(scalar)
            return Seen.calls.copy()

    expected = calls()
    with ds.transfers() as log, ds.guard("log"):
        assert calls() == expected
    assert log.count == 0
    with ds.guard("error"), pytest.raises(ds.TransferError):
        calls()


def test_scalars_of_a_gpu_in_a_list_are_reported():
    losses = [torch.tensor(1.0, device="sim:0")]
    call = lambda: torch.tensor(losses)  # noqa: E731 - one line, as a user writes it
    assert report_of(call) == ("gpu:0 to cpu for float()", first_line(call))


def test_tensors_without_values_are_not_reported():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with ds.guard("error"):
        meta = torch.ones(2, 3, device="meta")
        assert meta[0].shape == (3,)
        assert "meta" in repr(meta)
        with FakeTensorMode():
            assert "FakeTensor" in repr(torch.ones(2, device="sim:1")[:1])


# ---------------------------------------------------------------------- a GPU's values written into host tensors
@pytest.mark.parametrize("axes", [0, 1])
def test_writing_a_gpus_values_into_a_host_tensor_is_reported(x, axes):
    target, value = torch.zeros(3), x if axes else x[0]

    def call():
        target[:] = value

    what, at = report_of(call)
    assert what == "gpu:1 to cpu for an index or a value"
    assert at == f"{__file__}:{call.__code__.co_firstlineno + 1}"
    assert target.tolist() == [0.0] * 3
    with ds.guard("error", device_to_host="allow"):
        call()
    assert target.tolist() == value.cpu().expand(3).tolist()


def test_writes_of_host_tensors_are_not_reported(x):
    target = torch.zeros(3)
    with ds.guard("error"):
        target[0] = 1
        target[torch.tensor([1, 2])] = torch.ones(2)
        x[0] = torch.tensor(5.0)
    assert target.tolist() == [1.0] * 3


# ---------------------------------------------------------------------- compiled functions
def asks(x):
    return x if x.sum() > 0 else -x


def reads(x):
    return x * x.tolist()[0]


def indexes(x):
    return x[torch.tensor([0])]


def computes(x):
    return (x * 2)[1:].relu()


COMPILED = {
    asks: ("gpu:1 to cpu for bool()", 1),
    reads: ("gpu:1 to cpu for tolist()", 1),
    indexes: ("cpu to gpu:1 for an index", 0),
}
"""Function -> the report, and the line: inside the graph it is that of the function, the only one available."""


@pytest.mark.parametrize("before", [True, False], ids=["compiled before", "compiled under the guard"])
@pytest.mark.parametrize("fn", COMPILED)
def test_reports_about_compiled_functions_name_the_users_line(x, fn, before):
    torch._dynamo.reset()
    compiled = torch.compile(fn, backend="eager")
    if before:
        compiled(x)
    what, line = COMPILED[fn]
    at = f"{__file__}:{fn.__code__.co_firstlineno + line}"
    assert report_of(compiled, x) == report_of(compiled, x) == (what, at)
    with ds.guard("allow"):
        assert ds.device_of(compiled(x)) is ds.gpu(1)


def test_a_guard_breaks_no_graph(x):
    torch._dynamo.reset()
    with ds.guard("error"):
        made = torch.compile(computes, fullgraph=True, backend="eager")(x)
    assert made.tolist() == [4.0, 6.0]


def test_indices_are_not_reported_if_the_slots_are_unknown(monkeypatch, x):
    monkeypatch.setattr(sys, "implementation", type(sys.implementation)(name="other", **VERSIONS))
    before = torch.Tensor.__dict__.get("__getitem__")
    with ds.guard("error"):
        assert torch.Tensor.__dict__.get("__getitem__") is before
        assert x[torch.tensor([0])].device == x.device


VERSIONS = {"version": sys.version_info, "hexversion": sys.hexversion, "cache_tag": None}
