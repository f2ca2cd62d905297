"""Tests of errors inside torch.compile: the caller gets devshim's error, with or without one graph for the function."""

from __future__ import annotations

import copy
import pickle
import threading

import pytest
import torch
from programs import run_program

import devshim as ds

CALLS = {
    "a missing device": (lambda x, y: ds.place(x, "gpu:7"), ds.DeviceNotFoundError),
    "a scope of one": (lambda x, y: ds.run(_inside, x), ds.DeviceNotFoundError),
    "a mismatch": (lambda x, y: ds.run(torch.add, x, y), ds.DeviceMismatchError),
    "arguments by name": (lambda x, y: ds.require_same_device(x=x, y={"y": y}), ds.DeviceMismatchError),
    "no copy": (lambda x, y: ds.place(x, "gpu:1", copy=False), ds.CopyNeededError),
}


def _inside(x):
    with ds.on("gpu:7"):
        return x + x


@pytest.fixture(autouse=True)
def cards(two_cards):
    yield
    torch._dynamo.reset()


def error_of(fn, *args):
    """Return the error that a call raises, without the lines that a compiler adds."""
    with pytest.raises(ds.DevshimError) as caught:
        fn(*args)
    return str(caught.value).partition("\n\nfrom user code")[0], caught.value


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("call", CALLS)
def test_an_error_is_the_same_in_a_compiled_function(call, fullgraph):
    fn, cls = CALLS[call]
    args = ds.zeros(2), ds.zeros(2, device="gpu:1")
    expected = error_of(fn, *args)[0]
    found, error = error_of(torch.compile(fn, fullgraph=fullgraph, backend="eager"), *args)
    assert isinstance(error, cls)
    assert found == expected
    assert ds.device_of(ds.zeros(1)) is ds.cpu()


@pytest.mark.parametrize("make", ["zeros", "asarray", "normal", "from outside"])
def test_creation_needs_a_device_if_the_scope_is_outside(make):
    """Nothing tells the compiler that another `on` is active, so it would use the first one forever."""
    makes = {
        "zeros": lambda x: x * 0 + ds.zeros(2, dtype="float32").to(x.device),
        "asarray": lambda x: x * 0 + ds.asarray([1.0, 2.0]).to(x.device),
        "normal": lambda x: x * 0 + ds.random.normal(size=2).to(x.device),
        "from outside": lambda x: ds.arange(2),
    }
    fn, x = makes[make], torch.ones(2)
    error = error_of(torch.compile(fn, fullgraph=True, backend="eager"), x)[1]
    assert isinstance(error, ds.TracingError)
    assert "device=ds.device_of(x)" in error.hint
    broken = torch.compile(fn, backend="eager")
    for name in ("cpu", "gpu:1", "gpu:0"):
        with ds.on(name):
            assert str(ds.device_of(broken(x))) == (name if make == "from outside" else "cpu")


def test_a_new_default_dtype_gets_a_graph_of_its_own():
    def make(x):
        made = (ds.ones(2, device="cpu"), ds.asarray([[1, 2]], device="cpu"), ds.asarray([0.5, 1], device="cpu"))
        return *made, ds.arange(3, device="cpu"), x + 1

    compiled = torch.compile(make, fullgraph=True, backend="eager")
    try:
        for floating, integer in (("float32", "int64"), ("float64", "int32"), ("float32", "int64")):
            ds.set_default_dtype(floating, int=integer)
            made = [ds.dtype_of(x) for x in compiled(torch.ones(2))]
            assert made == [floating, integer, floating, integer, "float32"]
    finally:
        ds.set_default_dtype(None)


def test_outside_of_tracing_the_error_is_a_plain_one():
    fn = torch.compile(lambda x: (ds.memory("cpu"), x)[1], fullgraph=True, backend="eager")
    error = error_of(fn, ds.zeros(2))[1]
    assert (type(error).__name__, type(error).__module__) == ("TracingError", "devshim")
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(other) is ds.TracingError
        assert (other.problem, other.hint) == (error.problem, error.hint)


def test_a_conversion_between_frameworks_is_refused():
    """As the first call of a process, and after a call that has recorded a fast path, which reads the memory."""
    run_program(
        """
import numpy as np, torch, devshim as ds

array, one = np.ones(2, dtype="float32"), torch.ones(2)
calls = [
    lambda x: ds.convert(x, "numpy"),
    lambda x: ds.convert(array, "torch"),
    lambda x: ds.convert(array, "torch", "cpu", copy=True),
]
for _ in range(2):
    for call in calls:
        torch._dynamo.reset()
        try:
            torch.compile(lambda x: (call(x), x + 1)[1], backend="eager", fullgraph=True)(one)
        except ds.TracingError as error:
            assert "ds.convert cannot work inside a function that PyTorch is compiling" in str(error)
        else:
            raise AssertionError("nothing was refused")
    for call in calls:
        broken = torch.compile(call, backend="eager")
        assert [broken(one).tolist() for _ in range(2)] == [[1, 1]] * 2
""",
        DEVSHIM_BACKEND="torch",
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # `torch.jit.trace` itself, from 2.12 on
def test_place_works_in_a_torchscript_trace():
    """``torch.jit.trace`` passes real tensors whose sizes are tensors: it warns if a decision depends on one."""
    traced = torch.jit.trace(lambda x: ds.place(x, "gpu:1") * 2, torch.ones(2))
    made = traced(torch.full((2,), 3.0))
    assert ds.device_of(made) is ds.gpu(1)
    assert made.tolist() == [6.0, 6.0]


def test_a_function_with_a_graph_break_is_still_compiled():
    graphs = []

    def count(module, example):
        graphs.append(module)
        return module.forward

    log = ds.MetricLog()

    @torch.compile(backend=count)
    def step(x):
        y = x * 2
        log.append(y.sum())
        ds.synchronize()
        return ds.place(y + 1, "gpu:1")

    made = []
    for i in range(20):
        assert ds.to_numpy(step(ds.full(2, float(i)))).tolist() == [2 * i + 1] * 2
        made.append(len(graphs))
    assert made[0] > 0
    assert set(made[1:]) == {made[1]}, "it was compiled again"
    assert log.flush().tolist() == [4.0 * i for i in range(20)]


def test_a_tree_with_a_model_moves_at_a_graph_break():
    model = torch.nn.Linear(2, 2)

    @torch.compile(backend="eager")
    def moved(x):
        return ds.place({"x": x + x, "model": model}, "gpu:1")

    with ds.transfers() as log:
        tree = moved(torch.ones(2))
    assert tree["model"] is model
    assert ds.placement_of(tree).devices == {ds.gpu(1)}
    assert sum(record.bytes for record in log.records) == 2 * 4 + 4 * 4 + 2 * 4


@pytest.mark.parametrize("fullgraph", [True, False])
def test_a_tree_that_contains_itself_is_refused(fullgraph):
    tree = [torch.ones(2)]
    tree.append(tree)
    fn = torch.compile(lambda tree: ds.place(tree, "gpu:1"), fullgraph=fullgraph, backend="eager")
    assert error_of(fn, tree)[0] == error_of(ds.place, tree, "gpu:1")[0]


def test_another_thread_works_as_usual_while_one_compiles():
    found = []

    def use():
        found.append(ds.to_numpy(x).tolist())
        with pytest.raises(ds.DevshimError, match="300"):
            ds.asarray([300], dtype="uint8")
        with torch.inference_mode():
            copied = ds.copy(x, "cpu")
        found.append(copied.is_inference())

    def compile_beside_a_thread(graph, inputs):
        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        return graph

    x = torch.ones(2)
    torch._dynamo.reset()
    compiled = torch.compile(lambda y: y + 1, backend=compile_beside_a_thread)
    assert compiled(x).tolist() == [2, 2]
    assert found == [[1, 1], False]


class Halved(torch.nn.Module):
    def forward(self, x):
        return ds.split(x, ["cpu", "cpu"])[0]


def test_a_batch_of_unknown_length_is_not_split():
    with pytest.raises(ds.UnsupportedError, match="length of axis 0, and this FakeTensor has no fixed one"):
        torch.export.export(Halved(), (torch.ones(4, 3),), dynamic_shapes={"x": {0: torch.export.Dim("length")}})
    exported = torch.export.export(Halved(), (torch.ones(4, 3),))
    assert exported.module()(torch.ones(4, 3)).shape == (2, 3)
    compiled = torch.compile(Halved(), dynamic=True, backend="eager")
    assert [compiled(torch.ones(length, 3)).shape[0] for length in (4, 6, 7)] == [2, 3, 4]
