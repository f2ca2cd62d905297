"""Tests of a device as an argument of a compiled function: code compiled for one device is not used for another."""

from __future__ import annotations

import pytest
import torch
from programs import run_program

import devshim as ds

before_2_13 = tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 13)
reads_less = pytest.mark.skipif(before_2_13, reason="upstream: dynamo before 2.13 cannot trace these calls")


@pytest.fixture(autouse=True)
def cards(two_cards):
    yield
    torch._dynamo.reset()


def _inside(x, d):
    with ds.on(d):
        return ds.zeros(2), torch.zeros(2)


CALLS = {
    "place": lambda x, d: ds.place(x, d) + 1,
    "place, copy=True": lambda x, d: ds.place(x, d, copy=True),
    "place, tree": lambda x, d: ds.place({"x": x, "y": [x + 1]}, d)["y"][0],
    "place, placement": lambda x, d: ds.place({"x": x}, ds.Placement({"x": d}))["x"],
    "copy": lambda x, d: ds.copy(x, d),
    "convert": lambda x, d: ds.convert(x + 1, "torch", d),
    "on": _inside,
    "zeros": lambda x, d: ds.zeros(2, device=d),
    "zeros_like": lambda x, d: ds.zeros_like(x, device=d),
    "native": lambda x, d: x.to(d.native("torch")),
    "require": lambda x, d: ds.place(x, ds.require(d)),
    "kind": lambda x, d: x * 2 if d.kind == "cpu" else ds.place(x, d),
    "str": lambda x, d: ds.place(x, str(d)),
}
READ_LATER = {
    "split": lambda x, d: ds.split(x, [d, d])[1],
    "gather": lambda x, d: ds.gather([x, x], d),
    "broadcast": lambda x, d: ds.broadcast(x, [d])[0],
}
ORDER = ["cpu", "gpu:0", "gpu:1"]
"""For the first device, nothing tells torch.compile that there are others; the host's is used everywhere."""


def devices_of(made):
    return {str(ds.device_of(each)) for each in (made if isinstance(made, tuple) else (made,))}


@pytest.mark.parametrize("call", [*CALLS, *(pytest.param(name, marks=reads_less) for name in READ_LATER)])
def test_each_device_gets_its_own_graph(call):
    fn = torch.compile({**CALLS, **READ_LATER}[call], fullgraph=True, backend="eager")
    for name in [*ORDER, "cpu"]:
        assert devices_of(fn(torch.ones(2), ds.device(name))) == {name}


def test_the_host_gets_its_own_graph_after_a_gpu():
    fn = torch.compile(CALLS["place"], fullgraph=True, backend="eager")
    for name in ORDER[::-1]:
        assert devices_of(fn(torch.ones(2), ds.device(name))) == {name}


def test_a_missing_device_raises_the_same_error():
    fn = torch.compile(CALLS["place"], fullgraph=True, backend="eager")
    for name in ORDER[1:]:
        fn(torch.ones(2), ds.device(name))
    with pytest.raises(ds.DeviceNotFoundError, match="gpu:7 was asked for"):
        fn(torch.ones(2), ds.gpu(7))


def test_a_function_is_compiled_once_for_each_device():
    graphs = []

    def count(module, example):
        graphs.append(module)
        return module.forward

    fn = torch.compile(lambda x, d: ds.place(x, d) + 1, fullgraph=True, backend=count)
    made = []
    for _ in range(3):
        for name in ORDER:
            fn(torch.ones(2), ds.device(name))
        made.append(len(graphs))
    assert made[0] <= 6
    assert made[1:] == made[1:2] * 2, "it was compiled again"


def test_a_placement_can_be_an_argument():
    fn = torch.compile(lambda x, p: ds.place({"x": x}, p)["x"], fullgraph=True, backend="eager")
    for name in ORDER:
        assert devices_of(fn(torch.ones(2), ds.Placement({"x": name}))) == {name}


def test_an_index_is_not_a_size():
    """torch.compile treats an ``int`` that changes as one that may have any value."""
    fn = torch.compile(lambda x, i: ds.place(x, i), fullgraph=True, backend="eager")
    for i in (0, 1, 0, 1):
        assert devices_of(fn(torch.ones(2), i)) == {f"gpu:{i}"}


def test_a_cast_compiles_in_a_scope_of_another_gpu():
    """In a process that has not compiled before, in which the scope has replaced ``Tensor.to``."""
    code = """if True:
        import devshim as ds, torch
        ds.use("torch")
        ds.simulate(gpus=2)
        with ds.on("gpu:1"):
            ds.zeros(1)
            cast = torch.compile(lambda x: x.to(torch.float64), fullgraph=True, backend="eager")
            assert cast(torch.ones(3)).dtype is torch.float64
    """
    run_program(code)
