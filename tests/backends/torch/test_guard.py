"""Tests of the guard on PyTorch: operators that wait for a GPU, on simulated ones, on a CUDA stub and on a real GPU."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import warnings

import pytest
import torch
from devshim_backends._torch.transfers import operators

import devshim as ds

NEEDS_CARD = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() == 0, reason="hardware: no CUDA or ROCm card"),
]
F = torch.nn.functional


def line():
    return sys._getframe(1).f_lineno


@pytest.fixture
def x(two_cards):
    return torch.tensor([[3.0, 1.0], [0.0, 2.0]], device="sim:1")


WAITS = {
    "nonzero": (lambda x: torch.nonzero(x), "nonzero()"),
    "where": (lambda x: torch.where(x > 1), "nonzero()"),
    "masked_select": (lambda x: x.masked_select(x > 1), "masked_select()"),
    "unique": (lambda x: torch.unique(x), "unique()"),
    "unique_consecutive": (lambda x: torch.unique_consecutive(x), "unique_consecutive()"),
    "bincount": (lambda x: torch.bincount(x.long().flatten()), "bincount()"),
    "equal": (lambda x: torch.equal(x, x), "equal()"),
    "allclose": (lambda x: torch.allclose(x, x), "item()"),
    "one_hot": (lambda x: F.one_hot(x.long()), "item()"),
    "inv": (lambda x: torch.linalg.inv(x), "item()"),
    "repeat_interleave": (lambda x: x.repeat_interleave(x[0].long(), dim=0), "repeat_interleave()"),
    "index": (lambda x: torch.ops.aten.index(x, [x > 1]), "a selection by a mask"),
    "writing a GPU's number by a mask": (lambda x: x.__setitem__(x > 1, x[0, 0]), "a selection by a mask"),
    "writing by a mask": (lambda x: x.index_put_((x > 1,), x[0] + 1), "a selection by a mask"),
}
PASSES = {
    "where, three arguments": lambda x: torch.where(x > 1, x, 0.0),
    "masked_fill": lambda x: x.masked_fill(x > 1, 0.0),
    "writing a number by a mask": lambda x: x.__setitem__(x > 1, 0.0),
    "index of numbers": lambda x: x[x[1].long() // 2],
    "repeat_interleave, size known": lambda x: x.repeat_interleave(x[0].long(), dim=0, output_size=4),
    "to": lambda x: x.to("cpu"),
    "cpu": lambda x: x.cpu(),
    "tensor": lambda x: torch.tensor([1.0, 2.0], device="sim:1"),
    "copy_": lambda x: x.copy_(torch.ones(2, 2)),
    "clip_grad_norm_": lambda x: torch.nn.utils.clip_grad_norm_([torch.nn.Parameter(x)], 1.0),
    "a step of training": lambda x: step(x),
}


def step(x):
    layer = torch.nn.Linear(2, 1, device="sim:1")
    optimizer = torch.optim.Adam(layer.parameters())
    F.mse_loss(layer(x), torch.ones(2, 1, device="sim:1")).backward()
    optimizer.step()


@pytest.mark.parametrize("name", WAITS)
def test_operators_that_wait_for_a_gpu_are_reported(x, name):
    wait, what = WAITS[name]
    with ds.guard("error"), pytest.raises(ds.TransferError) as caught:
        wait(x)
    assert f"copies from gpu:1 to cpu for {what} (an implicit transfer) at {__file__}:" in caught.value.problem
    with ds.guard("warn"), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        wait(x)
    assert [each.category for each in seen] == [ds.TransferWarning] * len(seen) != []
    wait(x.cpu())


@pytest.mark.parametrize("name", PASSES)
def test_explicit_copies_and_operators_that_do_not_wait_pass(x, name):
    with ds.guard("error"):
        PASSES[name](x)


def test_the_report_names_the_line_in_a_hook(x):
    """A hook that the engine calls in a backward pass is the user's code."""
    at = []

    def hook(gradient):
        at.append(line() + 1)
        return gradient * float(gradient.sum())

    leaf = x.clone().requires_grad_()
    leaf.register_hook(hook)
    with ds.guard("error"), pytest.raises(ds.TransferError) as caught:
        (leaf * leaf).sum().backward()
    assert caught.value.problem.endswith(f"at {__file__}:{at[0]}")


def test_the_report_names_the_line_in_a_module(x):
    class Module(torch.nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with ds.guard("error"), pytest.raises(ds.TransferError) as caught:
        torch.nn.Sequential(Module())(x)
    assert caught.value.problem.endswith(f"at {__file__}:{Module.forward.__code__.co_firstlineno + 1}")


def test_afterwards_nothing_is_left(x):
    from devshim_backends._torch.simulation import hooks
    from devshim_backends._torch.simulation.internals import kernels

    before = hooks._compute, kernels.read, list(warnings.filters)
    with ds.guard("error"):
        assert hooks._compute is not before[0]
    assert (hooks._compute, kernels.read, list(warnings.filters)) == before


# ---------------------------------------------------------------------- CUDA, or its stub
class Cuda:
    """A stub of the part of ``torch.cuda`` that sets the mode, and of an operator that waits."""

    def __init__(self, monkeypatch, mode=0):
        self.mode, self.queued, self.started, self.warned = mode, [], True, bool(mode)
        for name in ("get_sync_debug_mode", "set_sync_debug_mode", "_lazy_call"):
            monkeypatch.setattr(torch.cuda, name, getattr(self, name))
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        self.used = {1}
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
        monkeypatch.setattr(torch._C, "_cuda_hasPrimaryContext", lambda index: index in self.used, raising=False)

    def get_sync_debug_mode(self):
        return self.mode

    def set_sync_debug_mode(self, mode):
        if not self.warned:
            self.warned = True  # TORCH_WARN_ONCE
            text = "Synchronization debug mode is a prototype feature (Triggered internally at a.cpp:1.)"
            warnings.warn(text, stacklevel=2)
        self.mode = {"default": 0, "warn": 1}[mode]

    def _lazy_call(self, fn):
        if self.started:
            fn()
        else:
            self.queued.append(fn)

    def wait(self):
        if self.mode == 1:
            warnings.warn("called a synchronizing CUDA operation (Triggered internally at b.cpp:2.)", stacklevel=2)
        return "done"


@pytest.fixture
def reports():
    return []


@pytest.fixture
def instrumented(reports):
    return lambda: operators.instrument_waits(lambda x: None, lambda *what: reports.append(what))


def test_cudas_mode_is_set_and_restored(monkeypatch, reports, instrumented):
    cuda, filters, methods = Cuda(monkeypatch), list(warnings.filters), (torch.Tensor.cpu, torch.tensor)
    with instrumented():
        assert cuda.mode == 1
        assert cuda.wait() == "done"
    assert reports == [(ds.gpu(1), ds.cpu(), "an operator that waits for the card")]
    assert cuda.mode == 0
    assert list(warnings.filters) == filters
    assert (torch.Tensor.cpu, torch.tensor) == methods
    cuda.mode = 1
    with pytest.warns(UserWarning, match="synchronizing"):
        cuda.wait()


def test_the_report_names_the_only_card_that_is_used(monkeypatch):
    """An operator on gpu:1 was reported as one on the thread's current GPU."""
    from devshim.registry.registry import load

    cuda, backend = Cuda(monkeypatch), load("torch")
    monkeypatch.setattr(
        type(backend),
        "report_implicit_transfers",
        lambda self, report: operators.instrument_waits(lambda x: None, report),
    )
    for used, text in (({1}, "copies from gpu:1 to cpu"), ({1, 3}, "copies from a GPU to cpu")):
        cuda.used = used
        with ds.guard("error"), pytest.raises(ds.TransferError, match=text):
            cuda.wait()


def test_waiting_for_a_stream_is_not_reported(monkeypatch, reports, instrumented):
    """``Stream.synchronize()`` is explicit, like ``torch.cuda.synchronize()``."""
    cuda = Cuda(monkeypatch)
    monkeypatch.setattr(torch.cuda.Stream, "synchronize", lambda _: cuda.wait())
    with instrumented():
        torch.cuda.Stream.synchronize(object())
    assert reports == []


def test_writing_a_number_is_not_reported(monkeypatch, reports, instrumented):
    """On a GPU PyTorch copies the 4 bytes of ``x[0] = 3.0`` and waits; writing a tensor is different."""
    cuda, original = Cuda(monkeypatch), torch.Tensor.__setitem__
    monkeypatch.setattr(torch.Tensor, "__setitem__", lambda x, i, value: (cuda.wait(), original(x, i, value))[1])
    x = torch.zeros(3)
    with instrumented():
        x[0] = 3.0
        x[1:] = True
        assert reports == []
        x[0] = torch.ones(())
    assert len(reports) == 1
    assert x.tolist() == [1.0, 1.0, 1.0]


class WaitingOperators(torch.utils._python_dispatch.TorchDispatchMode):
    """Operators that wait for the GPU, as copies to and from the host do there."""

    def __init__(self, cuda, *names):
        super().__init__()
        self.cuda, self.names = cuda, names

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if op.name().partition("::")[2].partition(".")[0] in self.names:
            self.cuda.wait()
        return op(*args, **(kwargs or {}))


BACKWARD = {
    "backward": lambda x, loss: loss.backward(),
    "torch.autograd.backward": lambda x, loss: torch.autograd.backward([loss]),
    "grad": lambda x, loss: torch.autograd.grad(loss, x),
    "edge": lambda x, loss: torch.autograd.backward([torch.autograd.graph.get_gradient_edge(loss)]),
}


@pytest.mark.parametrize("call", BACKWARD)
@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.filterwarnings("ignore:called a synchronizing CUDA")
def test_the_gradient_of_an_explicit_copy_is_not_reported(monkeypatch, reports, instrumented, call, mode):
    """PyTorch's own node copies a small gradient, whether the copy was made under the guard or before."""
    cuda = Cuda(monkeypatch, mode)
    x = torch.ones(3, requires_grad=True)
    y = torch.zeros(3, dtype=torch.float64)
    before = x.to(torch.float64) + y.copy_(x)  # their nodes do not query their devices
    with instrumented():
        for loss in (before.sum(), (ds.place(x, "cpu", copy=True) * 2).sum()):
            with WaitingOperators(cuda, "_to_copy"):
                BACKWARD[call](x, loss)
            assert cuda.mode == 1
            assert reports == []
        loss = (x.to(torch.float64) * 2).sum()
        with WaitingOperators(cuda, "mul"):
            BACKWARD[call](x, loss)
        assert len(reports) == 1, "an operator that waits is reported in a backward pass, too"
    assert cuda.mode == mode


def test_a_backward_pass_does_not_start_cuda(monkeypatch, instrumented):
    """A pass on the host, through a copy to another dtype: querying CUDA for its mode would start it."""
    cuda = Cuda(monkeypatch)
    cuda.started = False
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: pytest.fail("CUDA was asked"))
    with instrumented():
        torch.ones(3, requires_grad=True).to(torch.float64).sum().backward()
    cuda.queued.pop()()


def test_a_backward_pass_that_fails_restores_the_mode(monkeypatch, reports, instrumented):
    class Failing(WaitingOperators):
        def __torch_dispatch__(self, op, types, args=(), kwargs=None):
            if op.name() == "aten::_to_copy":
                raise KeyError("it fails")
            return op(*args, **(kwargs or {}))

    cuda = Cuda(monkeypatch)
    x = torch.ones(3, requires_grad=True)
    loss = x.to(torch.float64).sum()
    with instrumented():
        with pytest.raises(KeyError), Failing(cuda):
            loss.backward()
        assert cuda.mode == 1
        cuda.wait()
    assert len(reports) == 1
    assert cuda.mode == 0


def test_guards_register_one_callback_for_the_start_of_cuda(monkeypatch, instrumented):
    """PyTorch stores calls to make when CUDA starts, each with a stack; one for each guard was a leak."""
    cuda = Cuda(monkeypatch)
    cuda.started = False
    for _ in range(3):
        with instrumented():
            pass
    assert len(cuda.queued) == 1
    with instrumented():
        cuda.queued.pop()()
        assert cuda.mode == 1
    assert cuda.mode == 0


def test_the_guard_raises_where_cuda_warns(monkeypatch):
    """The filter runs inside the warning, so the error leaves the operator itself."""
    from devshim.monitoring import guard
    from devshim.registry.registry import load

    cuda = Cuda(monkeypatch)
    backend = load("torch")
    monkeypatch.setattr(
        type(backend),
        "report_implicit_transfers",
        lambda self, report: operators.instrument_waits(lambda x: None, report),
    )
    with ds.guard("error"), pytest.raises(ds.TransferError) as caught:
        cuda.wait()
    assert " for an operator that waits for the card (an implicit transfer) at " in caught.value.problem
    assert "copies from gpu:1 to cpu" in caught.value.problem
    assert caught.value.problem.endswith(f"at {__file__}:{Cuda.wait.__code__.co_firstlineno + 2}")
    with ds.guard("error"), ds.guard("allow"):
        assert cuda.wait() == "done"
    with pytest.warns(ds.TransferWarning) as seen, ds.guard("warn"):
        cuda.wait()
    assert len(seen) == 1
    assert guard._instrumented == {}
    assert cuda.mode == 0


@pytest.mark.parametrize("name", ["asarray", "save", "load"])
def test_explicit_functions_are_not_reported(monkeypatch, reports, instrumented, name):
    cuda = Cuda(monkeypatch)
    monkeypatch.setattr(torch, name, lambda *_: cuda.wait())
    with instrumented():
        assert getattr(torch, name)([1]) == "done"
        torch.ones(2).to("cpu").cpu()
    assert reports == []


@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")  # importing the compiler
def test_wrapped_functions_are_compiled_in_one_graph(monkeypatch, instrumented):
    """The wrappers of explicitly copying functions do not affect torch.compile."""
    Cuda(monkeypatch)

    def moved(x):
        return x.to("cpu", torch.float64).cpu() + torch.tensor([1.0]) + torch.asarray([2.0])

    torch._dynamo.reset()
    with instrumented():
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # the compiler queries more than the stub has
        compiled = torch.compile(moved, fullgraph=True, backend="eager")
        assert compiled(torch.ones(2)).tolist() == [4.0, 4.0]


def test_the_default_device_applies_to_functions_that_a_guard_has_wrapped(monkeypatch, instrumented):
    """PyTorch collects its functions that create tensors once, which may be while a guard is open."""
    Cuda(monkeypatch)
    torch.utils._device._device_constructors.cache_clear()
    with instrumented(), torch.device("meta"):
        assert torch.tensor([1.0]).device.type == torch.zeros(1).device.type == "meta"
    with torch.device("meta"):
        assert torch.tensor([1.0]).device.type == torch.asarray([1.0]).device.type == "meta"


def test_a_mode_that_the_user_set_stays(monkeypatch, reports, instrumented):
    cuda = Cuda(monkeypatch, mode=1)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with instrumented():
            assert cuda.mode == 1
            cuda.wait()
    assert cuda.mode == len(seen) == 1
    assert len(reports) == 1


def test_a_guard_does_not_start_cuda(monkeypatch, reports, instrumented):
    cuda = Cuda(monkeypatch)
    cuda.started = False
    with instrumented():
        assert cuda.mode == 0
        cuda.queued.pop()()
        assert cuda.mode == 1
    assert cuda.mode == 0
    with instrumented():
        pass
    cuda.queued.pop()()
    assert cuda.mode == 0, "CUDA was started after the guard"
    assert cuda.queued == []


@pytest.mark.parametrize("name", ["item", "nonzero", "mask", "cpu", "to", "tensor", "place", "gradient"])
@pytest.mark.parametrize("_", [pytest.param(0, marks=NEEDS_CARD)])
def test_the_guard_on_a_real_card(name, _):
    calls = {
        "item": lambda x: x.sum().item(),
        "nonzero": torch.nonzero,
        "mask": lambda x: x[x > 1],
        "cpu": lambda x: x.cpu(),
        "to": lambda x: x.to("cpu"),
        "tensor": lambda x: torch.tensor([1.0], device="cuda"),
        "place": lambda x: ds.place(x, "cpu"),
        "gradient": lambda x: (ds.place(torch.ones(4, requires_grad=True), "gpu:0") * x).sum().backward(),
    }
    ds.use("torch")
    x = torch.arange(4.0, device="cuda")
    hidden = name in ("item", "nonzero", "mask")
    with ds.guard("error"), pytest.raises(ds.TransferError, match=__file__) if hidden else contextlib.nullcontext():
        calls[name](x)
    assert torch.cuda.get_sync_debug_mode() == 0


def test_a_guard_outlives_simulated_gpus_with_native_names():
    """It is instrumented when they are switched on, and PyTorch's CUDA is removed when it is closed."""
    code = """
import warnings
import torch
import devshim as ds
ds.use("torch")
filters = list(warnings.filters)
with ds.guard("error"):
    with ds.simulate(1, native_names=True):
        x = torch.ones(1, device="cuda:0")
        del x
assert warnings.filters == filters
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
